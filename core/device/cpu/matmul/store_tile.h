// The end of a product: a finished FP32 tile becomes C. Compiled at every level.
#pragma once

#include "core/device/cpu/matmul/engine.h"
#include "core/device/cpu/simd/vector.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

constexpr int32_t kDTypeF32 = 1;

struct NothingToAdd {};
INVAR_INLINE F32 plus(F32 value, const NothingToAdd*, int64_t, Full) { return value; }
INVAR_INLINE F32 plus(F32 value, const NothingToAdd*, int64_t, Part) { return value; }
template <typename T, typename Step>
INVAR_INLINE F32 plus(F32 value, const T* row, int64_t i, Step part) {
  return value + load(row + i, part);
}

template <int64_t kNr, bool kAccumulate, bool kSquares, typename C, typename Add>
INVAR_INLINE void store_rows(const StoreArgs& args) {
  const F32 alpha = set(args.alpha);
  const float* tile = args.tile;
  C* c = static_cast<C*>(args.c);
  const Add* add = static_cast<const Add*>(args.add);
  F64 low{}, high{};
  for (int64_t row = 0; row < args.rows; ++row) {
    const auto store_vector = [&](int64_t i, auto part) {
      F32 value = load(tile + i, part) * alpha;
      if constexpr (kAccumulate) value += load(c + i, part);
      value = plus(value, add, i, part);
      store(c + i, value, part);
      if constexpr (kSquares) {
        // Of what was stored; lanes beyond a part are zero.
        value = load(c + i, part);
        const F64 lower = lower_f64(value), upper = upper_f64(value);
        low = fma(lower, lower, low);
        high = fma(upper, upper, high);
      }
    };
    if (args.cols == kNr) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < kNr; i += kLanes) store_vector(i, Full{});
    } else {
      for_vectors(args.cols, store_vector);
    }
    tile += kNr;
    c += args.ldc;
    if constexpr (!__is_same(Add, NothingToAdd)) add += args.ld_add;
  }
  if constexpr (kSquares) *args.sum_squares = add_lanes(low + high);
}

template <int64_t kNr, bool kAccumulate, typename C, typename Add>
void store_with(const StoreArgs& args) {
  if (args.sum_squares != nullptr) {
    store_rows<kNr, kAccumulate, true, C, Add>(args);
  } else {
    store_rows<kNr, kAccumulate, false, C, Add>(args);
  }
}

template <int64_t kNr, bool kAccumulate, typename C>
void store_to(const StoreArgs& args) {
  if (args.add == nullptr) {
    store_with<kNr, kAccumulate, C, NothingToAdd>(args);
  } else if (args.add_dtype == kDTypeF32) {
    store_with<kNr, kAccumulate, C, float>(args);
  } else {
    store_with<kNr, kAccumulate, C, uint16_t>(args);
  }
}

template <int64_t kNr>
void store_tile(const StoreArgs& args) {
  if (args.c_dtype != kDTypeF32) {
    store_to<kNr, false, uint16_t>(args);
  } else if (args.accumulate != 0) {
    store_to<kNr, true, float>(args);
  } else {
    store_to<kNr, false, float>(args);
  }
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
