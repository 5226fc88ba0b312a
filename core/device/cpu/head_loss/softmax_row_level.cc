#include "core/device/cpu/head_loss/softmax_row.h"
#include "core/device/cpu/simd/math.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

SoftmaxRow softmax_row_level();

namespace {

// Elements whose exponentials are added in FP32 before the sum goes on in FP64.
constexpr int64_t kRun = 8 * kLanes;

float cap_and_max(float* logits, int64_t count, float soft_cap) {
  const float lowest = -__builtin_inff();
  F32 largest = set(lowest);
  if (soft_cap > 0) {
    const F32 inverse = set(1 / soft_cap);
    for_vectors(count, [&](int64_t i, auto part) {
      store(logits + i, set(soft_cap) * tanh(load(logits + i, part) * inverse), part);
    });
  }
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) largest = max(largest, load(logits + i));
  float result = max_lanes(largest);
  for (; i < count; ++i) result = logits[i] > result ? logits[i] : result;
  return result;
}

int64_t find(const float* logits, int64_t count, float value) {
  for (int64_t i = 0; i < count; ++i) {
    if (logits[i] == value) return i;
  }
  return 0;
}

double sum_exp(const float* logits, int64_t count, float largest) {
  F64 total{};
  int64_t i = 0;
  for (; i + kRun <= count; i += kRun) {
    F32 first = zero(), second = zero();
    for (int64_t j = 0; j < kRun; j += 2 * kLanes) {
      first += exp(load(logits + i + j) - largest);
      second += exp(load(logits + i + j + kLanes) - largest);
    }
    total += lower_f64(first + second) + upper_f64(first + second);
  }
  for (; i + kLanes <= count; i += kLanes) {
    const F32 value = exp(load(logits + i) - largest);
    total += lower_f64(value) + upper_f64(value);
  }
  double sum = add_lanes(total);
  if (i < count) {
    float rest[kLanes];
    store(rest, exp(load(logits + i, Part{count - i}) - largest));
    for (int64_t j = 0; i + j < count; ++j) sum += rest[j];
  }
  return sum;
}

// Out is narrower than or as wide as the logits it replaces: an element is read before its place is written.
template <typename Out>
void write_gradient(float* logits, int64_t count, int64_t whole, float largest, float factor, int64_t target,
                    float scale, float soft_cap) {
  Out* out = reinterpret_cast<Out*>(logits);
  const float inverse = soft_cap > 0 ? 1 / soft_cap : 0;
  // The target's own element, before its logit is overwritten.
  const float bent = logits[target] * inverse;
  float at_target[kLanes];
  store(at_target, (exp(set(logits[target] - largest)) * factor - scale) * (1 - bent * bent));
  for_vectors(count, [&](int64_t i, auto part) {
    const F32 value = load(logits + i, part);
    F32 gradient = exp(value - largest) * factor;
    if (soft_cap > 0) gradient = gradient * (1.0f - (value * inverse) * (value * inverse));
    store(out + i, gradient, part);
  });
  store(out + target, load(at_target), Part{1});
  for_vectors(whole - count, [&](int64_t i, auto part) { store(out + count + i, zero(), part); });
}

void gradient(float* logits, int64_t count, int64_t whole, float largest, float factor, int64_t target, float scale,
              float soft_cap, int32_t dtype) {
  if (dtype == kF32) {
    write_gradient<float>(logits, count, whole, largest, factor, target, scale, soft_cap);
  } else {
    write_gradient<uint16_t>(logits, count, whole, largest, factor, target, scale, soft_cap);
  }
}

}  // namespace

SoftmaxRow softmax_row_level() { return {cap_and_max, find, sum_exp, gradient}; }

}  // namespace invar::cpu::INVAR_LEVEL_NAME
