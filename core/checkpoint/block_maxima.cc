#include "core/checkpoint/block_maxima.h"

#include <algorithm>

#include "core/numerics/codec.h"
#include "core/numerics/formats.h"

namespace invar {
namespace {

constexpr int64_t kMostScales = 1 << 20, kSmallestBlock = 64;

int64_t scales_of(const TensorPlan& plan) { return element_count(plan.scales[0].tensor->shape); }

}  // namespace

bool BlockMaxima::fits(const TensorPlan& plan) {
  if (plan.coding != Coding::kFloat || !is_fp8(plan.code_dtype) || plan.scales.empty()) return false;
  const ScaleGrid& grid = plan.scales[0].grid;
  return scales_of(plan) <= kMostScales &&
         std::min(grid.block_rows, grid.rows) * std::min(grid.block_cols, grid.cols) >= kSmallestBlock;
}

BlockMaxima::BlockMaxima(const TensorPlan& plan)
    : count_(scales_of(plan)), largest_(std::make_unique<std::atomic<uint8_t>[]>(static_cast<size_t>(count_))) {}

void BlockMaxima::note(const TensorPlan& plan, int64_t first, const uint8_t* codes, int64_t n,
                       std::vector<uint8_t>& scratch) {
  const ScaleGrid& grid = plan.scales[0].grid;
  scratch.assign(static_cast<size_t>(grid.cols), 0);
  int64_t scale_row = grid.scale_row(first / grid.cols), from = grid.cols, to = 0;  // columns seen under scale_row
  const auto flush = [&] {
    for (int64_t col = from; col < to;) {
      const int64_t block = col / grid.block_cols, end = std::min(to, (block + 1) * grid.block_cols);
      const uint8_t most = *std::max_element(scratch.begin() + col, scratch.begin() + end);
      std::atomic<uint8_t>& largest = largest_[static_cast<size_t>(scale_row + block)];
      for (uint8_t before = largest.load(std::memory_order_relaxed);
           before < most && !largest.compare_exchange_weak(before, most, std::memory_order_relaxed);) {
      }
      col = end;
    }
    std::fill(scratch.begin(), scratch.end(), uint8_t{0});
    from = grid.cols, to = 0;
  };
  for (int64_t done = 0; done < n;) {
    const int64_t row = (first + done) / grid.cols, col = (first + done) % grid.cols;
    const int64_t count = std::min(n - done, grid.cols - col);
    if (const int64_t now = grid.scale_row(row); now != scale_row) {
      flush();
      scale_row = now;
    }
    raise_to_magnitudes(codes + done, count, scratch.data() + col);
    from = std::min(from, col), to = std::max(to, col + count);
    done += count;
  }
  flush();
}

BlockSummary BlockMaxima::summary(DType code_dtype) const {
  const FormatInfo& format = format_info(code_dtype);
  const float top = max_finite(code_dtype);
  BlockSummary found;
  for (int64_t i = 0; i < count_; ++i) {
    const uint32_t code = largest_[static_cast<size_t>(i)].load(std::memory_order_relaxed);
    if (code == 0) continue;
    ++found.blocks;
    const float value = decode(code_dtype, std::min<uint32_t>(code, format.max_code));
    found.full += value == top;
    found.upper += value > top / 2 && value < top;
  }
  return found;
}

}  // namespace invar
