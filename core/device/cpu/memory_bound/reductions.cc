#include "core/device/cpu/memory_bound/memory_bound.h"
#include "core/device/cpu/simd/vector.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

// FP64 in several lanes: at most kChunk / 32 additions one after another, then a tree.
double chunk_sum_squares(const float* x, int64_t count) {
  F64 sums[4] = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    prefetch_behind(x + i);
    prefetch_behind(x + i + kLanes);
    const F32 first = load(x + i), second = load(x + i + kLanes);
    const F64 a = lower_f64(first), b = upper_f64(first), c = lower_f64(second), d = upper_f64(second);
    sums[0] = fma(a, a, sums[0]);
    sums[1] = fma(b, b, sums[1]);
    sums[2] = fma(c, c, sums[2]);
    sums[3] = fma(d, d, sums[3]);
  }
  double rest = 0;
  for (; i < count; ++i) rest += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return add_lanes((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

double tree_sum(const double* values, int64_t count) {
  if (count == 1) return values[0];
  return tree_sum(values, count / 2) + tree_sum(values + count / 2, count - count / 2);
}

// The largest magnitude as bits: infinities and NaN are above every finite number.
uint32_t chunk_largest_bits(const float* x, int64_t count) {
  U32 largest[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int64_t k = 0; k < 4; ++k) {
      prefetch_behind(x + i + k * kLanes);
      largest[k] = max(largest[k], bits(load(x + i + k * kLanes)) & 0x7fffffff);
    }
  }
  for_vectors(count - i, [&](int64_t rest, auto part) {
    largest[0] = max(largest[0], bits(load(x + i + rest, part)) & 0x7fffffff);
  });
  return max_lanes(max(max(largest[0], largest[1]), max(largest[2], largest[3])));
}

}  // namespace

int32_t sum_squares(Context& context, const float* x, int64_t count, double* sum) {
  if (count <= kChunk) {
    *sum = chunk_sum_squares(x, count);
    return kOk;
  }
  const int64_t chunks = ceil_div(count, kChunk);
  if (!reserve_shared_scratch(context, kScratchOperation, static_cast<size_t>(chunks) * sizeof(double))) {
    return kResourceExhausted;
  }
  double* sums = static_cast<double*>(shared_scratch(context, kScratchOperation));
  for_pieces(context, count, kChunk,
             [&](int64_t first, int64_t last) { sums[first / kChunk] = chunk_sum_squares(x + first, last - first); });
  *sum = tree_sum(sums, chunks);
  return kOk;
}

int32_t all_finite(Context& context, const float* x, int64_t count, int32_t* finite) {
  // Set by any task, never cleared; parallel_for's end orders it before the read.
  int32_t broken = 0;
  for_pieces(context, count, kChunk, [&](int64_t first, int64_t last) {
    if (chunk_largest_bits(x + first, last - first) >= 0x7f800000) __atomic_store_n(&broken, 1, __ATOMIC_RELAXED);
  });
  *finite = broken == 0 ? 1 : 0;
  return kOk;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
