// Blocks of queries: how a call is cut into them, and how a finished block is stored.
#pragma once

#include "core/device/cpu/attention/softmax.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

struct QueryBlock {
  int64_t sequence, first;
};

// The blocks of all sequences in order: block number -> (sequence, first query), by walking the offsets.
static inline QueryBlock find_query_block(const invar_attention_args& args, int64_t block) {
  int64_t s = 0;
  for (;; ++s) {
    const int64_t blocks = ceil_div(args.q_offsets[s + 1] - args.q_offsets[s], kTileQueries);
    if (block < blocks) return {s, block * kTileQueries};
    block -= blocks;
  }
}

static inline int64_t count_query_blocks(const invar_attention_args& args) {
  int64_t blocks = 0;
  for (int64_t s = 0; s < args.sequences; ++s) {
    blocks += ceil_div(args.q_offsets[s + 1] - args.q_offsets[s], kTileQueries);
  }
  return blocks;
}

// Divides by the sums of weights, rounds, and writes the log-sum-exps. from: [rows, padded]; sums: [rows, kLanes].
template <typename Act>
static inline void finish_block(const invar_attention_args& args, int64_t head, int64_t token, int64_t rows,
                                int64_t padded, const float* from, const float* sums, const float* largest) {
  const int64_t dim = args.head_dim;
  Act* out = static_cast<Act*>(args.out) + token * args.ldo + head * dim;
  const int64_t tokens = args.q_offsets[args.sequences];
  for (int64_t i = 0; i < rows; ++i) {
    const float sum = add_lanes(load(sums + i * kLanes));
    const float inverse = 1 / sum;
    const float* row = from + i * padded;
    for_vectors(dim, [&](int64_t c, auto part) { store(out + i * args.ldo + c, load(row + c) * inverse, part); });
    if (args.lse != nullptr) {
      const double lse = static_cast<double>(largest[i] * Softmax<Act>::kInverseUnit) + __builtin_log(sum);
      args.lse[head * tokens + token + i] = static_cast<float>(lse);
    }
  }
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
