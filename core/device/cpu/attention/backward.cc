// The backward pass (Dao et al. 2022): weights are made again from lse. A task owns one head and one chunk of a
// sequence's keys; it walks the chunk's key tiles and, for each, the query tiles that see them. It keeps the chunk's
// d_k and d_v to itself and writes its own part of d_q; parts are added in order at the end.
#include "core/device/cpu/attention/attention.h"
#include "core/device/cpu/attention/softmax.h"
#include "core/device/cpu/attention/tiles.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

// Chunks of at least 512 keys, at most eight a sequence: their number bounds the memory for d_q's parts.
constexpr int64_t kLeastChunk = 512;
constexpr int64_t kMostChunks = 8;

int64_t chunk_size(int64_t keys) { return larger(kLeastChunk, round_up(ceil_div(keys, kMostChunks), kTileKeys)); }

struct Plan {
  explicit Plan(const invar_attention_args& args)
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

// Worker memory of one task.
struct TileState {
  TileState(float* memory, int64_t padded)
      : keys(memory),
        keys_transposed(keys + kTileKeys * padded),
        values_transposed(keys_transposed + kTileKeys * padded),
        queries(values_transposed + kTileKeys * padded),
        d_out(queries + kTileQueries * padded),
        weights(d_out + kTileQueries * padded),
        d_scores(weights + kTileQueries * kTileKeys) {}
  static int64_t floats(int64_t padded) {
    return 3 * kTileKeys * padded + 2 * kTileQueries * padded + 2 * kTileQueries * kTileKeys;
  }

  float* keys;               // [kTileKeys, padded]
  float* keys_transposed;    // [dim, kTileKeys]
  float* values_transposed;  // [dim, kTileKeys]
  float* queries;            // [kTileQueries, padded], scaled as in the forward pass
  float* d_out;              // [kTileQueries, padded]
  float* weights;            // [kTileQueries, kTileKeys]
  float* d_scores;           // [kTileQueries, kTileKeys]
};

// delta[token] = d_out . out, a head and token at a time.
template <typename Act>
void make_deltas(Context& context, const invar_attention_backward_args& args, const Plan& plan) {
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

// The tile of queries [first, first + rows) against the loaded tile of keys [key, key + keys).
template <typename Act>
void tile_gradients(const invar_attention_backward_args& args, const Plan& plan, const Sequence& sequence, int64_t head,
                    int64_t chunk, int64_t first, int64_t rows, int64_t key, int64_t keys, const TileState& state) {
  const invar_attention_args& forward = args.forward;
  const int64_t dim = forward.head_dim, padded = plan.padded, token = sequence.first_query + first;
  const SoftCap cap(forward.soft_cap, Softmax<Act>::kUnit);
  load_rows(static_cast<const Act*>(forward.q) + token * forward.ldq + head * dim, forward.ldq, rows, dim,
            forward.scale * Softmax<Act>::kUnit, state.queries, padded);
  load_rows(static_cast<const Act*>(args.d_out) + token * forward.ldo + head * dim, forward.ldo, rows, dim, 1,
            state.d_out, padded);
  const float* lse = forward.lse + head * plan.query_tokens + token;
  const float* delta = plan.delta(head) + token;

  for (int64_t row = 0; row < rows; row += kTileRows) {
    const int64_t group = smaller(kTileRows, rows - row);
    const int64_t seen = larger(0, smaller(keys, sequence.end_visible(first + row + group - 1) - key));
    const int64_t cols = round_up(seen, kLanes);
    float* weights = state.weights + row * kTileKeys;
    float* d_scores = state.d_scores + row * kTileKeys;
    // What lies beyond is read by the products over queries below.
    for (int64_t r = 0; r < group; ++r) {
      for (int64_t j = cols; j < kTileKeys; j += kLanes) {
        store(weights + r * kTileKeys + j, zero());
        store(d_scores + r * kTileKeys + j, zero());
      }
    }
    if (seen == 0) continue;
    row_tile_product(
        group, cols,
        {state.queries + row * padded, padded, 1, state.keys_transposed, kTileKeys, weights, kTileKeys, dim, false});
    row_tile_product(
        group, cols,
        {state.d_out + row * padded, padded, 1, state.values_transposed, kTileKeys, d_scores, kTileKeys, dim, false});
    for (int64_t r = 0; r < group; ++r) {
      const int64_t i = first + row + r;
      const Range visible{smaller(cols, larger(0, sequence.first_visible(i) - key)),
                          larger(0, smaller(cols, sequence.end_visible(i) - key))};
      row_gradient<Act>(weights + r * kTileKeys, d_scores + r * kTileKeys, visible, cols, cap,
                        lse[row + r] * Softmax<Act>::kUnit, delta[row + r]);
    }
    row_tile_product(
        group, padded,
        {d_scores, kTileKeys, 1, state.keys, padded, plan.d_q(chunk, head, token + row), padded, seen, true});
  }

  for (int64_t j = 0; j < keys; j += kTileRows) {
    const int64_t group = smaller(kTileRows, keys - j), at = sequence.first_key + key + j;
    // Only queries at or behind the first of these keys have weights here.
    const int64_t skip = smaller(rows, larger(0, sequence.seeing(key + j, key + j + group).first - first));
    const int64_t inner = rows - skip;
    if (inner == 0) continue;
    row_tile_product(group, padded,
                     {state.weights + skip * kTileKeys + j, 1, kTileKeys, state.d_out + skip * padded, padded,
                      plan.d_v(head, at), padded, inner, true});
    row_tile_product(group, padded,
                     {state.d_scores + skip * kTileKeys + j, 1, kTileKeys, state.queries + skip * padded, padded,
                      plan.d_k(head, at), padded, inner, true});
  }
}

template <typename Act>
void chunk_gradients(const invar_attention_backward_args& args, const Plan& plan, int64_t s, int64_t head,
                     int64_t chunk, const TileState& state) {
  const invar_attention_args& forward = args.forward;
  const Sequence sequence(forward, s);
  const int64_t dim = forward.head_dim, padded = plan.padded, kv_head = head / (forward.heads / forward.kv_heads);
  const int64_t size = chunk_size(sequence.keys);
  const int64_t begin = chunk * size, end = smaller(sequence.keys, begin + size);
  if (begin >= end) return;
  const Range queries = sequence.seeing(begin, end);
  for (int64_t i = queries.first; i < queries.end; ++i) {
    memset(plan.d_q(chunk, head, sequence.first_query + i), 0, static_cast<size_t>(padded) * sizeof(float));
  }
  const size_t key_bytes = static_cast<size_t>((end - begin) * padded) * sizeof(float);
  memset(plan.d_k(head, sequence.first_key + begin), 0, key_bytes);
  memset(plan.d_v(head, sequence.first_key + begin), 0, key_bytes);

  for (int64_t key = begin; key < end; key += kTileKeys) {
    const int64_t keys = smaller(kTileKeys, end - key), token = sequence.first_key + key;
    load_rows(static_cast<const Act*>(forward.v) + token * forward.ldv + kv_head * dim, forward.ldv, keys, dim, 1,
              state.keys, padded);
    transpose_rows(state.keys, padded, keys, dim, state.values_transposed);
    load_rows(static_cast<const Act*>(forward.k) + token * forward.ldk + kv_head * dim, forward.ldk, keys, dim, 1,
              state.keys, padded);
    transpose_rows(state.keys, padded, keys, dim, state.keys_transposed);
    const Range seeing = sequence.seeing(key, key + keys);
    for (int64_t first = seeing.first; first < seeing.end; first += kTileQueries) {
      tile_gradients<Act>(args, plan, sequence, head, chunk, first, smaller(kTileQueries, seeing.end - first), key,
                          keys, state);
    }
  }
}

// Adds the parts of d_q over chunks and of d_k, d_v over the heads of a group, in order, and rounds once.
template <typename Act>
void store_gradients(Context& context, const invar_attention_backward_args& args, const Plan& plan) {
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

template <typename Act>
int32_t backward(Context& context, const invar_attention_backward_args& args) {
  const invar_attention_args& forward = args.forward;
  Plan plan(forward);
  const int64_t own = TileState::floats(plan.padded);
  if (!reserve_shared_scratch(context, kScratchOperation, static_cast<size_t>(plan.floats()) * sizeof(float)) ||
      !reserve_worker_scratch(context, kScratchOperation, static_cast<size_t>(own) * sizeof(float))) {
    return kResourceExhausted;
  }
  plan.memory = static_cast<float*>(shared_scratch(context, kScratchOperation));
  make_deltas<Act>(context, args, plan);
  // Chunks in their order: with a causal mask the first has the most work.
  const int64_t pairs = forward.sequences * forward.heads;
  parallel_for(context, plan.chunks * pairs, [&](int64_t item, int32_t worker) {
    const int64_t pair = item % pairs;
    const TileState state(static_cast<float*>(worker_scratch(context, kScratchOperation, worker)), plan.padded);
    chunk_gradients<Act>(args, plan, pair / forward.heads, pair % forward.heads, item / pairs, state);
  });
  store_gradients<Act>(context, args, plan);
  return kOk;
}

}  // namespace

int32_t attention_backward(Context& context, const invar_attention_backward_args& args) {
  if (args.forward.sequences == 0) return kOk;
  return args.forward.dtype == kF32 ? backward<float>(context, args) : backward<uint16_t>(context, args);
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
