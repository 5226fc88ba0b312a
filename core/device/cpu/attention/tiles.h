// What the forward and the backward pass share: which keys a query sees, tile sizes, and operands brought into FP32
// tiles in worker memory.
#pragma once

#include "core/device/cpu/attention/tile_product.h"
#include "core/device/cpu/kernels.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

constexpr int64_t kTileQueries = 48;  // a multiple of kTileRows
constexpr int64_t kTileKeys = 64;     // a multiple of kTileVectors * kLanes on every level

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

struct Range {
  int64_t first, end;
};

// One sequence: its first token in q and k, and its lengths. Queries and keys are counted from its start.
struct Sequence {
  Sequence(const invar_attention_args& args, int64_t s)
      : first_query(args.q_offsets[s]),
        queries(args.q_offsets[s + 1] - args.q_offsets[s]),
        first_key(args.k_offsets[s]),
        keys(args.k_offsets[s + 1] - args.k_offsets[s]),
        window(args.window) {}

  // Query i sees these keys: ends are aligned.
  int64_t end_visible(int64_t i) const { return keys - queries + i + 1; }
  int64_t first_visible(int64_t i) const { return window > 0 ? larger(0, end_visible(i) - window) : 0; }
  // Queries of [first, end) that see a key of [first_key_at, end_key_at): a superset without gaps.
  Range seeing(int64_t first_key_at, int64_t end_key_at) const {
    const int64_t first = larger(0, first_key_at - (keys - queries));
    const int64_t end = window > 0 ? smaller(queries, end_key_at - 1 - (keys - queries) + window) : queries;
    return {first, larger(first, end)};
  }

  int64_t first_query, queries, first_key, keys, window;
};

// The first tile of sequence s when tiles of `size` tokens are numbered over all sequences: an upper bound on those
// before it, which needs no table.
static inline int64_t first_tile(int64_t first_token, int64_t s, int64_t size) { return first_token / size + s; }

// rows x dim elements at ld into FP32 rows of `padded` elements, times `scale`; the padding is zero.
template <typename Act>
static inline void load_rows(const Act* from, int64_t ld, int64_t rows, int64_t dim, float scale, float* to,
                             int64_t padded) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = to + r * padded;
    for_vectors(dim, [&](int64_t i, auto part) { store(row + i, load(from + r * ld + i, part) * scale); });
    for (int64_t i = round_up(dim, kLanes); i < padded; i += kLanes) store(row + i, zero());
  }
}

// The transpose of `keys` FP32 rows: to [dim, kTileKeys]; keys beyond them are zero.
static inline void transpose_rows(const float* from, int64_t padded, int64_t keys, int64_t dim, float* to) {
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t d = 0; d < dim; ++d) to[d * kTileKeys + j] = from[j * padded + d];
  }
  for (int64_t d = 0; d < dim; ++d) {
    for (int64_t j = keys; j < kTileKeys; ++j) to[d * kTileKeys + j] = 0;
  }
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
