// The softmax of one row of logits in place: what stands between the three products of the output head.
//
// Compiled once for every instruction set (softmax_row.cc); softmax_row(level) picks one.
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <stdint.h>

#include "core/device/cpu/kernels.h"

namespace invar::cpu {

struct SoftmaxRow {
  // logits[0, count) = soft_cap * tanh(logits / soft_cap) when soft_cap > 0; returns the largest.
  float (*cap_and_max)(float* logits, int64_t count, float soft_cap);
  // Index of the first element equal to `value`; 0 when there is none (a row of NaN).
  int64_t (*find)(const float* logits, int64_t count, float value);
  // FP64 sum of exp(logits - largest).
  double (*sum_exp)(const float* logits, int64_t count, float largest);
  // The gradient in place of the logits, as F32 or BF16 from the row's start:
  // factor * exp(logits - largest), minus scale at `target`, times 1 - (logit / soft_cap)^2 when capped;
  // zero in [count, whole).
  void (*gradient)(float* logits, int64_t count, int64_t whole, float largest, float factor, int64_t target,
                   float scale, float soft_cap, int32_t dtype);
};

SoftmaxRow softmax_row(Level level);

}  // namespace invar::cpu
