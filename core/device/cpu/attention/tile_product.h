// The one product of the attention kernels: C [rows, cols] (+)= A [rows, inner] B [inner, cols] in FP32, for operands
// that lie in the first two cache levels.
//
// A's elements are broadcast, so A may be read along either of its axes (a_row and a_inner are strides); B and C are
// row-major. Accumulators of a kRows x kVectors tile stay in registers.
#pragma once

#include "core/device/cpu/simd/vector.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

constexpr int kTileRows = 6;
#if defined(__AVX512F__)
constexpr int kTileVectors = 4;  // 24 of 32 registers
#else
constexpr int kTileVectors = 2;  // 12 of 16
#endif

struct TileOperands {
  const float* a;
  int64_t a_row, a_inner;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  int64_t inner;
  bool accumulates;
};

template <int kRows, int kVectors>
static inline void tile_product(const TileOperands& at) {
  F32 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = at.accumulates ? load(at.c + r * at.ldc + v * kLanes) : zero();
    }
  }
  const float* a = at.a;
  const float* b = at.b;
  for (int64_t k = 0; k < at.inner; ++k, a += at.a_inner, b += at.ldb) {
    F32 right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = load(b + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const F32 left = set(a[r * at.a_row]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(left, right[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) store(at.c + r * at.ldc + v * kLanes, sums[r][v]);
  }
}

template <int kRows>
static inline void tile_product_vectors(const TileOperands& at, int64_t vectors) {
#if defined(__AVX512F__)
  if (vectors == 4) return tile_product<kRows, 4>(at);
  if (vectors == 3) return tile_product<kRows, 3>(at);
#endif
  if (vectors == 2) return tile_product<kRows, 2>(at);
  tile_product<kRows, 1>(at);
}

// rows <= kTileRows; cols is a multiple of kLanes.
static inline void row_tile_product(int64_t rows, int64_t cols, TileOperands at) {
  for (int64_t vectors = cols / kLanes; vectors > 0;) {
    const int64_t step = vectors < kTileVectors ? vectors : kTileVectors;
    switch (rows) {
      case 6: tile_product_vectors<6>(at, step); break;
      case 5: tile_product_vectors<5>(at, step); break;
      case 4: tile_product_vectors<4>(at, step); break;
      case 3: tile_product_vectors<3>(at, step); break;
      case 2: tile_product_vectors<2>(at, step); break;
      default: tile_product_vectors<1>(at, step); break;
    }
    vectors -= step;
    at.b += step * kLanes;
    at.c += step * kLanes;
  }
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
