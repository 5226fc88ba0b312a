// BF16 products on AMX tiles (or their software model) and the operand forms they take.
//
// C [16, cols] (+)= A [16, inner] B [inner, cols]: A is row-major BF16; B lies in pairs, [inner / 2][cols][2], so that
// a row of a tile holds two rows of B side by side. inner is a multiple of 32, cols of 32. Rows, columns and inner
// elements that do not exist are stored as zeros.
#pragma once

#include "core/device/cpu/attention/tiles.h"
#include "core/device/cpu/matmul/amx_tiles.h"
#include "core/device/cpu/matmul/transpose.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

constexpr int64_t kAmxRows = 16;

// Eight tiles of 16 rows by 64 bytes: 0 to 3 accumulate, 4 holds A, 5 to 7 hold B. A task configures its thread and
// releases it when done.
static inline void configure_tiles() {
  TileConfig config{};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = kAmxRows;
    config.row_bytes[tile] = 64;
  }
  TILE_CONFIGURE(&config);
}

struct PairOperands {
  const uint16_t* a;
  int64_t lda;        // elements
  const uint16_t* b;  // pairs
  int64_t ldb;        // columns of B as stored
  float* c;
  int64_t ldc;
  int64_t cols, inner;
  bool accumulates;
};

static inline void pair_product(const PairOperands& at) {
  const auto a_bytes = static_cast<long>(at.lda * 2), b_bytes = static_cast<long>(at.ldb * 4);
  const auto c_bytes = static_cast<long>(at.ldc * 4);
  int64_t col = 0;
  for (; col + 64 <= at.cols; col += 64) {
    float* c = at.c + col;
    if (at.accumulates) {
      TILE_LOAD(0, c, c_bytes);
      TILE_LOAD(1, c + 16, c_bytes);
      TILE_LOAD(2, c + 32, c_bytes);
      TILE_LOAD(3, c + 48, c_bytes);
    } else {
      TILE_ZERO(0);
      TILE_ZERO(1);
      TILE_ZERO(2);
      TILE_ZERO(3);
    }
    for (int64_t k = 0; k < at.inner; k += 32) {
      const uint16_t* b = at.b + k * at.ldb + col * 2;
      TILE_LOAD(4, at.a + k, a_bytes);
      TILE_LOAD(5, b, b_bytes);
      TILE_DOT(0, 4, 5);
      TILE_LOAD(6, b + 32, b_bytes);
      TILE_DOT(1, 4, 6);
      TILE_LOAD(7, b + 64, b_bytes);
      TILE_DOT(2, 4, 7);
      TILE_LOAD(5, b + 96, b_bytes);
      TILE_DOT(3, 4, 5);
    }
    TILE_STORE(0, c, c_bytes);
    TILE_STORE(1, c + 16, c_bytes);
    TILE_STORE(2, c + 32, c_bytes);
    TILE_STORE(3, c + 48, c_bytes);
  }
  for (; col < at.cols; col += 32) {
    float* c = at.c + col;
    if (at.accumulates) {
      TILE_LOAD(0, c, c_bytes);
      TILE_LOAD(1, c + 16, c_bytes);
    } else {
      TILE_ZERO(0);
      TILE_ZERO(1);
    }
    for (int64_t k = 0; k < at.inner; k += 32) {
      const uint16_t* b = at.b + k * at.ldb + col * 2;
      TILE_LOAD(4, at.a + k, a_bytes);
      TILE_LOAD(5, b, b_bytes);
      TILE_DOT(0, 4, 5);
      TILE_LOAD(6, b + 32, b_bytes);
      TILE_DOT(1, 4, 6);
    }
    TILE_STORE(0, c, c_bytes);
    TILE_STORE(1, c + 16, c_bytes);
  }
}

// `rows` rows of `dim` elements at ld, then zero rows up to `all_rows`; to [all_rows, dim]. dim is a multiple of 32.
static inline void copy_rows(const uint16_t* from, int64_t ld, int64_t rows, int64_t all_rows, int64_t dim,
                             uint16_t* to) {
  for (int64_t r = 0; r < rows; ++r) memcpy(to + r * dim, from + r * ld, static_cast<size_t>(dim) * sizeof(uint16_t));
  memset(to + rows * dim, 0, static_cast<size_t>((all_rows - rows) * dim) * sizeof(uint16_t));
}

// Two rows side by side: to[c][0] = even[c], to[c][1] = odd[c].
INVAR_INLINE void store_pair(uint16_t* to, U16 even, U16 odd) {
  const U32 both = __builtin_convertvector(even, U32) | (__builtin_convertvector(odd, U32) << 16);
  memcpy(to, &both, sizeof both);
}

INVAR_INLINE U16 load_bits(const uint16_t* from) {
  U16 value;
  memcpy(&value, from, sizeof value);
  return value;
}

// rows [all_rows, dim] (contiguous) as a B of inner = all_rows: pairs of rows. to [all_rows / 2][dim][2].
static inline void pair_rows(const uint16_t* rows, int64_t all_rows, int64_t dim, uint16_t* to) {
  for (int64_t r = 0; r < all_rows; r += 2) {
    for (int64_t c = 0; c < dim; c += kLanes) {
      store_pair(to + (r * dim + c * 2), load_bits(rows + r * dim + c), load_bits(rows + (r + 1) * dim + c));
    }
  }
}

// rows [all_rows, dim] as a B of inner = dim: the transpose's pairs. to [dim / 2][all_rows][2]. Bits are moved only.
static inline void pair_columns(const uint16_t* rows, int64_t all_rows, int64_t dim, uint16_t* to) {
  for (int64_t r = 0; r < all_rows; r += kLanes) {
    for (int64_t c = 0; c < dim; c += 2 * kLanes) {
      F32 block[kLanes];
      for (int64_t k = 0; k < kLanes; ++k) memcpy(&block[k], rows + (r + k) * dim + c, sizeof block[k]);
      transpose(block);
      for (int64_t k = 0; k < kLanes; ++k) memcpy(to + ((c / 2 + k) * all_rows + r) * 2, &block[k], sizeof block[k]);
    }
  }
}

// rows [all_rows, dim] transposed: to [dim, all_rows].
static inline void transpose_bf16(const uint16_t* rows, int64_t all_rows, int64_t dim, uint16_t* to) {
  for (int64_t r = 0; r < all_rows; r += kLanes) {
    for (int64_t c = 0; c < dim; c += kLanes) {
      F32 block[kLanes];
      for (int64_t k = 0; k < kLanes; ++k) block[k] = load(rows + (r + k) * dim + c);
      transpose(block);
      for (int64_t k = 0; k < kLanes; ++k) {
        const U16 upper = __builtin_convertvector(bits(block[k]) >> 16, U16);
        memcpy(to + (c + k) * all_rows + r, &upper, sizeof upper);
      }
    }
  }
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
