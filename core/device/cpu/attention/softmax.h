// The softmax of the attention kernels, made online: a row of scores at a time (Milakov and Gimelshein 2018).
#pragma once

#include "core/device/cpu/attention/tiles.h"
#include "core/device/cpu/simd/math.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2 = 0x1.62e430p-1f;

// How scores become weights. BF16 works in powers of two: log2(e) is folded into the queries and the exponential is
// short, since results are rounded to 8 bits; F32 takes the full exponential.
template <typename Act>
struct Softmax;

template <>
struct Softmax<float> {
  static constexpr float kUnit = 1;         // scores are multiplied by it
  static constexpr float kInverseUnit = 1;  // and results by this
  static INVAR_INLINE F32 power(F32 x) { return exp(x); }
};
template <>
struct Softmax<uint16_t> {
  static constexpr float kUnit = kLog2E;
  static constexpr float kInverseUnit = kLn2;
  static INVAR_INLINE F32 power(F32 x) { return exp2_short(x); }
};

// The soft cap on scores that carry Softmax::kUnit.
struct SoftCap {
  SoftCap(float soft_cap, float unit) : is_set(soft_cap > 0), cap(soft_cap * unit), inverse(1 / cap) {}
  // tanh(score / cap): the capped score is `cap` times that, and 1 - ratio^2 its derivative.
  INVAR_INLINE F32 ratio(F32 score) const { return tanh(score * inverse); }
  bool is_set;
  float cap, inverse;
};

// Turns one row of scores into weights relative to the new largest score; what the row had so far is scaled to it.
template <typename Act>
INVAR_INLINE void soften_row(float* scores, Range visible, int64_t cols, const SoftCap& cap, float* sums,
                             float* largest, float* out, int64_t padded) {
  const float kNothing = -__builtin_inff();
  if (cap.is_set) {
    for (int64_t j = 0; j < cols; j += kLanes) store(scores + j, cap.ratio(load(scores + j)) * cap.cap);
  }
  for (int64_t j = 0; j < visible.first; ++j) scores[j] = kNothing;
  for (int64_t j = visible.end; j < cols; ++j) scores[j] = kNothing;
  F32 top = load(scores);
  for (int64_t j = kLanes; j < cols; j += kLanes) top = max(top, load(scores + j));
  const float here = max_lanes(top), before = *largest;
  const float now = here > before ? here : before;
  if (now == kNothing) {  // nothing visible yet
    for (int64_t j = 0; j < cols; j += kLanes) store(scores + j, zero());
    return;
  }
  F32 sum = load(sums);
  if (now != before) {
    *largest = now;
    const F32 shrink = Softmax<Act>::power(set(before - now));
    sum *= shrink;
    for (int64_t c = 0; c < padded; c += kLanes) store(out + c, load(out + c) * shrink);
  }
  for (int64_t j = 0; j < cols; j += kLanes) {
    const F32 weight = Softmax<Act>::power(load(scores + j) - now);
    sum += weight;
    store(scores + j, weight);
  }
  store(sums, sum);
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
