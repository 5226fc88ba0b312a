// What the backward passes share: the cut into chunks, where their parts lie, and the steps before and after the tiles.
#pragma once

#include "core/device/cpu/attention/softmax.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

// Chunks of at least 512 keys, at most eight a sequence: their number bounds the memory for d_q's parts.
constexpr int64_t kLeastChunk = 512;
constexpr int64_t kMostChunks = 8;

static inline int64_t chunk_size(int64_t keys) {
  return larger(kLeastChunk, round_up(ceil_div(keys, kMostChunks), kTileKeys));
}

struct BackwardPlan {
  explicit BackwardPlan(const invar_attention_args& args)
      : heads(args.heads),
        padded(round_up(args.head_dim, kLanes)),
        query_tokens(args.q_offsets[args.sequences]),
        key_tokens(args.k_offsets[args.sequences]) {
    for (int64_t s = 0; s < args.sequences; ++s) {
      const int64_t keys = args.k_offsets[s + 1] - args.k_offsets[s];
      chunks = larger(chunks, ceil_div(keys, chunk_size(keys)));
    }
  }

  // Shared memory in floats: d_q [chunks][heads][query token], d_k and d_v [heads][key token], delta [heads][token].
  int64_t d_q_floats() const { return chunks * heads * query_tokens * padded; }
  int64_t d_k_floats() const { return heads * key_tokens * padded; }
  int64_t floats() const { return d_q_floats() + 2 * d_k_floats() + heads * query_tokens; }

  float* d_q(int64_t chunk, int64_t head, int64_t token) const {
    return memory + ((chunk * heads + head) * query_tokens + token) * padded;
  }
  float* d_k(int64_t head, int64_t token) const { return memory + d_q_floats() + (head * key_tokens + token) * padded; }
  float* d_v(int64_t head, int64_t token) const { return d_k(head, token) + d_k_floats(); }
  float* delta(int64_t head) const { return memory + d_q_floats() + 2 * d_k_floats() + head * query_tokens; }

  float* memory = nullptr;
  int64_t heads, padded, query_tokens, key_tokens;
  int64_t chunks = 1;  // the most of any sequence
};

// delta[token] = d_out . out, a head and token at a time.
template <typename Act>
static inline void make_deltas(Context& context, const invar_attention_backward_args& args, const BackwardPlan& plan) {
  const invar_attention_args& forward = args.forward;
  constexpr int64_t kTokens = 64;
  parallel_for(context, ceil_div(plan.query_tokens, kTokens), [&](int64_t piece, int32_t) {
    for (int64_t token = piece * kTokens; token < smaller(plan.query_tokens, (piece + 1) * kTokens); ++token) {
      if (token < forward.q_offsets[0]) continue;
      for (int64_t head = 0; head < plan.heads; ++head) {
        const int64_t at = token * forward.ldo + head * forward.head_dim;
        const Act* out = static_cast<const Act*>(forward.out) + at;
        const Act* d_out = static_cast<const Act*>(args.d_out) + at;
        F32 sum = zero();
        for_vectors(forward.head_dim,
                    [&](int64_t c, auto part) { sum = fma(load(out + c, part), load(d_out + c, part), sum); });
        plan.delta(head)[token] = add_lanes(sum);
      }
    }
  });
}

// One row: scores to weights, d_weights to d_scores; what the row does not see becomes zero in both.
template <typename Act>
INVAR_INLINE void row_gradient(float* weights, float* d_scores, Range visible, int64_t cols, const SoftCap& cap,
                               float lse, float delta) {
  for (int64_t j = 0; j < cols; j += kLanes) {
    F32 score = load(weights + j), slope = set(1);
    if (cap.is_set) {
      const F32 ratio = cap.ratio(score);
      score = ratio * cap.cap;
      slope = fnma(ratio, ratio, slope);
    }
    const F32 weight = Softmax<Act>::power(min(score - lse, zero()));
    store(weights + j, weight);
    store(d_scores + j, weight * (load(d_scores + j) - delta) * slope);
  }
  for (int64_t j = 0; j < visible.first; ++j) weights[j] = d_scores[j] = 0;
  for (int64_t j = visible.end; j < cols; ++j) weights[j] = d_scores[j] = 0;
}

// Adds the parts of d_q over chunks and of d_k, d_v over the heads of a group, in order, and rounds once.
template <typename Act>
static inline void store_gradients(Context& context, const invar_attention_backward_args& args,
                                   const BackwardPlan& plan) {
  const invar_attention_args& forward = args.forward;
  const int64_t dim = forward.head_dim, group = forward.heads / forward.kv_heads;
  parallel_for(context, forward.sequences * forward.heads, [&](int64_t item, int32_t) {
    const Sequence sequence(forward, item / forward.heads);
    const int64_t head = item % forward.heads, size = chunk_size(sequence.keys);
    for (int64_t i = 0; i < sequence.queries; ++i) {
      const int64_t token = sequence.first_query + i;
      const int64_t from = sequence.first_visible(i) / size, to = (sequence.end_visible(i) - 1) / size;
      Act* d_q = static_cast<Act*>(args.d_q) + token * forward.ldq + head * dim;
      for_vectors(dim, [&](int64_t c, auto part) {
        F32 sum = load(plan.d_q(from, head, token) + c);
        for (int64_t chunk = from + 1; chunk <= to; ++chunk) sum += load(plan.d_q(chunk, head, token) + c);
        store(d_q + c, sum * forward.scale, part);
      });
    }
  });
  parallel_for(context, forward.sequences * forward.kv_heads, [&](int64_t item, int32_t) {
    const Sequence sequence(forward, item / forward.kv_heads);
    const int64_t kv_head = item % forward.kv_heads;
    for (int64_t j = 0; j < sequence.keys; ++j) {
      const int64_t token = sequence.first_key + j;
      Act* d_k = static_cast<Act*>(args.d_k) + token * forward.ldk + kv_head * dim;
      Act* d_v = static_cast<Act*>(args.d_v) + token * forward.ldv + kv_head * dim;
      for_vectors(dim, [&](int64_t c, auto part) {
        F32 k_sum = zero(), v_sum = zero();
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          k_sum += load(plan.d_k(head, token) + c);
          v_sum += load(plan.d_v(head, token) + c);
        }
        // The queries carried the scale and the softmax's unit.
        store(d_k + c, k_sum * Softmax<Act>::kInverseUnit, part);
        store(d_v + c, v_sum, part);
      });
    }
  });
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
