#include "core/tensor/tensor.h"

#include <limits>

namespace invar {

namespace {

std::string shape_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += cat(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

Result<int64_t> elements_of(DType dtype, std::span<const int64_t> shape) {
  if (bits_of(dtype) == 0) {
    return Error(Code::kInvalidArgument, "tensor.dtype", cat("dtype ", static_cast<int>(dtype), " is not known"));
  }
  if (shape.size() > Tensor::kMaxRank) {
    return Error(Code::kInvalidArgument, "tensor.shape",
                 cat("shape has ", shape.size(), " dimensions, at most ", Tensor::kMaxRank, " are supported"));
  }
  // bytes_of multiplies by the bits of an element: at most 64.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 64;
  int64_t elements = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) {
      return Error(Code::kInvalidArgument, "tensor.shape", cat("shape ", shape_text(shape), " has a negative size"));
    }
    if (size == 0) {
      empty = true;
      continue;
    }
    if (elements > kMost / size) {
      return Error(Code::kInvalidArgument, "tensor.shape", cat("shape ", shape_text(shape), " is too large"));
    }
    elements *= size;
  }
  return empty ? 0 : elements;
}

}  // namespace

Result<int64_t> Tensor::bytes_of_shape(DType dtype, std::span<const int64_t> shape) {
  INVAR_ASSIGN(const int64_t elements, elements_of(dtype, shape));
  return invar::bytes_of(dtype, elements);
}

Result<Tensor> Tensor::view(DType dtype, std::vector<int64_t> shape, std::shared_ptr<void> memory) {
  INVAR_ASSIGN(const int64_t elements, elements_of(dtype, shape));
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.elements_ = elements;
  tensor.memory_ = std::move(memory);
  return tensor;
}

}  // namespace invar
