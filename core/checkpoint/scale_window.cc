#include "core/checkpoint/scale_window.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/numerics/formats.h"

namespace invar {
namespace {

float widen(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, at, 4);
      return value;
    }
    case DType::kF64: {
      double value;
      std::memcpy(&value, at, 8);
      return static_cast<float>(value);
    }
    case DType::kBF16:
    case DType::kF16: {
      uint16_t bits;
      std::memcpy(&bits, at, 2);
      return decode(dtype, bits);
    }
    default: return decode(dtype, static_cast<uint8_t>(*at));  // E8M0
  }
}

}  // namespace

std::vector<int64_t> position_of(const std::vector<int64_t>& shape, int64_t flat) {
  std::vector<int64_t> position(shape.size(), 0);
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) continue;
    position[i] = flat % shape[i];
    flat /= shape[i];
  }
  return position;
}

std::string position_text(const std::vector<int64_t>& shape, int64_t flat) {
  return shape_text(position_of(shape, flat));
}

Status ScaleWindow::load(const CheckpointFolder& folder, const TensorPlan& plan, int64_t first, int64_t count) {
  term_ = plan.scales.empty() ? nullptr : &plan.scales[0];
  has_zero_ = false;
  powers_of_two_ = true;
  smallest_ = largest_ = 1;
  first_block_ = begin_ = 0;
  values_.clear();
  if (term_ == nullptr) return {};
  const ScaleGrid& grid = term_->grid;
  const int64_t first_row = first / grid.cols, last_row = (first + count - 1) / grid.cols;
  begin_ = grid.scale_row(first_row);
  int64_t end = grid.scale_row(last_row) + grid.grid_cols;
  if (first_row == last_row) {
    first_block_ = first % grid.cols / grid.block_cols;
    end = begin_ + (first + count - 1) % grid.cols / grid.block_cols + 1;
    begin_ += first_block_;
  }
  const int64_t width = bits_of(term_->dtype) / 8, total = end - begin_;
  bytes_.resize(static_cast<size_t>(total * width));
  values_.resize(static_cast<size_t>(total));
  INVAR_TRY(folder.read(*term_->tensor, begin_ * width, bytes_));
  float tensor_scale = 1;
  if (plan.scales.size() > 1) {
    const ScaleTerm& second = plan.scales[1];
    std::byte stored[8];
    INVAR_TRY(folder.read(*second.tensor, 0, std::span(stored).first(static_cast<size_t>(bits_of(second.dtype) / 8))));
    tensor_scale = widen(second.dtype, stored);
    if (!std::isfinite(tensor_scale) || tensor_scale <= 0) {
      return Error(Code::kDataLoss,
                   std::isfinite(tensor_scale) && tensor_scale < 0 ? "checkpoint.scale_negative"
                   : tensor_scale == 0                             ? "checkpoint.scale_zero"
                                                                   : "checkpoint.scale_not_finite",
                   cat(join_path(folder.path(), folder.file_name(*second.tensor)), ": scale ",
                       in_quotes(second.tensor->name), " is ", tensor_scale, "; expected a positive finite number"));
    }
  }
  float smallest = INFINITY, largest = 0;
  for (int64_t i = 0; i < total; ++i) {
    float value = widen(term_->dtype, bytes_.data() + i * width);
    if (plan.scales.size() > 1) value = plan.scales[1].divides ? value / tensor_scale : value * tensor_scale;
    values_[static_cast<size_t>(i)] = value;
    if (!std::isfinite(value) || value < 0) {
      const bool negative = std::isfinite(value);
      return Error(Code::kDataLoss, negative ? "checkpoint.scale_negative" : "checkpoint.scale_not_finite",
                   cat(join_path(folder.path(), folder.file_name(*term_->tensor)), ": scale ",
                       in_quotes(term_->tensor->name), " is ", value, " at ",
                       position_text(term_->tensor->shape, begin_ + i), "; expected a positive finite number"));
    }
    if (value == 0) {
      has_zero_ = true;
      continue;
    }
    if ((std::bit_cast<uint32_t>(value) & 0x7FFFFFu) != 0) powers_of_two_ = false;
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  }
  if (largest > 0) {
    smallest_ = smallest;
    largest_ = largest;
  }
  return {};
}

int64_t ScaleWindow::index_of(int64_t element) const {
  const ScaleGrid& grid = term_->grid;
  return grid.scale_row(element / grid.cols) + element % grid.cols / grid.block_cols;
}

float ScaleWindow::at(int64_t element) const {
  return term_ == nullptr ? 1.0f : values_[static_cast<size_t>(index_of(element) - begin_)];
}

int64_t ScaleWindow::run(int64_t element, int64_t limit) const {
  if (term_ == nullptr || values_.size() == 1) return limit;
  const int64_t col = element % term_->grid.cols, block = term_->grid.block_cols;
  return std::min({limit, term_->grid.cols - col, block - col % block});
}

std::string ScaleWindow::place_of(int64_t element) const {
  return term_ == nullptr ? "[]" : position_text(term_->tensor->shape, index_of(element));
}

}  // namespace invar
