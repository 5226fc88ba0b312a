// The largest code under each scale of a weight: what tells how its scales were chosen, and that codes and scales
// belong together.
//
//   if (BlockMaxima::fits(plan)) maxima = std::make_unique<BlockMaxima>(plan);
//   maxima->note(plan, first, codes, n);          // tiles in any order, from any worker
//   const BlockSummary summary = maxima->summary(plan.code_dtype);
//
// Thread rule: note() from any thread; summary() after the last of them.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "core/checkpoint/layout.h"

namespace invar {

// Blocks with a non-zero code, by the largest one: all of the format's range, more than half of it, less.
struct BlockSummary {
  int64_t blocks = 0, full = 0, upper = 0;
};

class BlockMaxima {
 public:
  // One byte a scale: for weights of one 8-bit float an element under at most a million scales of at least 64 elements.
  static bool fits(const TensorPlan& plan);
  explicit BlockMaxima(const TensorPlan& plan);

  void note(const TensorPlan& plan, int64_t first, const uint8_t* codes, int64_t n, std::vector<uint8_t>& scratch);
  BlockSummary summary(DType code_dtype) const;

 private:
  int64_t count_ = 0;
  std::unique_ptr<std::atomic<uint8_t>[]> largest_;
};

}  // namespace invar
