// The backward pass (Dao et al. 2022): weights are made again from lse. A task owns one head and one chunk of a
// sequence's keys; it walks the chunk's key tiles and, for each, the query tiles that see them. It keeps the chunk's
// d_k and d_v to itself and writes its own part of d_q; parts are added in order at the end.
#include "core/device/cpu/attention/attention.h"
#include "core/device/cpu/attention/backward_plan.h"
#include "core/device/cpu/attention/softmax.h"
#include "core/device/cpu/attention/tiles.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

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

// The tile of queries [first, first + rows) against the loaded tile of keys [key, key + keys).
template <typename Act>
void tile_gradients(const invar_attention_backward_args& args, const BackwardPlan& plan, const Sequence& sequence,
                    int64_t head, int64_t chunk, int64_t first, int64_t rows, int64_t key, int64_t keys,
                    const TileState& state) {
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
void chunk_gradients(const invar_attention_backward_args& args, const BackwardPlan& plan, int64_t s, int64_t head,
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

template <typename Act>
int32_t backward(Context& context, const invar_attention_backward_args& args) {
  const invar_attention_args& forward = args.forward;
  BackwardPlan plan(forward);
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
