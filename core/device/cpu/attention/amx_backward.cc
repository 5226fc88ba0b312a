// The backward pass with its five products on AMX tiles. A task owns one head and one chunk of keys, as in backward.cc.
// d_k and d_v are summed transposed, [dim, keys]: then weights and their gradients are B operands as they come, two
// queries side by side, and what has to be transposed (queries, d_out, keys, values) is transposed once.
#include "core/device/cpu/attention/amx_products.h"
#include "core/device/cpu/attention/attention.h"
#include "core/device/cpu/attention/backward_plan.h"

namespace invar::cpu {

namespace avx512 {
int32_t attention_backward(Context& context, const invar_attention_backward_args& args);
}

namespace INVAR_LEVEL_NAME {
namespace {

constexpr int64_t kAmxQueries = 64;

// Queries and d_out of every head, transposed in tiles: [dim, kAmxQueries] each.
struct TransposedQueries {
  uint16_t* tile(const Sequence& sequence, int64_t s, int64_t head, int64_t query_tile) const {
    const int64_t number = first_tile(sequence.first_query, s, kAmxQueries) + query_tile;
    return tiles + (heads * number + head) * tile_elements();
  }
  int64_t tile_elements() const { return 2 * kAmxQueries * dim; }

  uint16_t* tiles;
  int64_t dim, heads;
};

struct TileState {
  TileState(float* memory, int64_t dim)
      : d_k(memory),
        d_v(d_k + kTileKeys * dim),
        scores(d_v + kTileKeys * dim),
        d_scores(scores + kAmxRows * kTileKeys),
        d_q(d_scores + kAmxRows * kTileKeys),
        rows(reinterpret_cast<uint16_t*>(d_q + kAmxRows * dim)),
        keys(rows + kTileKeys * dim),
        key_pairs(keys + kTileKeys * dim),
        value_pairs(key_pairs + kTileKeys * dim),
        queries(value_pairs + kTileKeys * dim),
        d_out(queries + kAmxQueries * dim),
        weight_pairs(d_out + kAmxQueries * dim),
        d_score_pairs(weight_pairs + kAmxQueries * kTileKeys),
        d_score_rows(d_score_pairs + kAmxQueries * kTileKeys) {}
  static int64_t floats(int64_t dim) {
    return (2 * kTileKeys + kAmxRows) * dim + 2 * kAmxRows * kTileKeys +
           (4 * kTileKeys * dim + 2 * kAmxQueries * dim + 2 * kAmxQueries * kTileKeys + kAmxRows * kTileKeys) / 2;
  }

  float* d_k;               // [dim, kTileKeys]
  float* d_v;               // [dim, kTileKeys]
  float* scores;            // [kAmxRows, kTileKeys], then the weights
  float* d_scores;          // [kAmxRows, kTileKeys]
  float* d_q;               // [kAmxRows, dim]
  uint16_t* rows;           // [kTileKeys, dim], being packed
  uint16_t* keys;           // pairs of keys [kTileKeys / 2][dim][2]
  uint16_t* key_pairs;      // pairs of columns [dim / 2][kTileKeys][2]
  uint16_t* value_pairs;    // the same of the values
  uint16_t* queries;        // [kAmxQueries, dim]
  uint16_t* d_out;          // [kAmxQueries, dim]
  uint16_t* weight_pairs;   // pairs of queries [kAmxQueries / 2][kTileKeys][2]
  uint16_t* d_score_pairs;  // the same of the gradients of scores
  uint16_t* d_score_rows;   // [kAmxRows, kTileKeys]
};

void transpose_queries(Context& context, const invar_attention_backward_args& args, const TransposedQueries& to) {
  const invar_attention_args& forward = args.forward;
  const int64_t dim = forward.head_dim;
  parallel_for(context, forward.sequences * forward.heads, [&](int64_t item, int32_t worker) {
    const int64_t s = item / forward.heads, head = item % forward.heads;
    const Sequence sequence(forward, s);
    uint16_t* rows = static_cast<uint16_t*>(worker_scratch(context, kScratchOperation, worker));
    for (int64_t first = 0; first < sequence.queries; first += kAmxQueries) {
      const int64_t count = smaller(kAmxQueries, sequence.queries - first), token = sequence.first_query + first;
      uint16_t* tile = to.tile(sequence, s, head, first / kAmxQueries);
      copy_rows(static_cast<const uint16_t*>(forward.q) + token * forward.ldq + head * dim, forward.ldq, count,
                kAmxQueries, dim, rows);
      transpose_bf16(rows, kAmxQueries, dim, tile);
      copy_rows(static_cast<const uint16_t*>(args.d_out) + token * forward.ldo + head * dim, forward.ldo, count,
                kAmxQueries, dim, rows);
      transpose_bf16(rows, kAmxQueries, dim, tile + kAmxQueries * dim);
    }
  });
}

// FP32 rows (a pair) to the BF16 forms that the next products take.
void store_row_pair(const float* rows, uint16_t* pairs, uint16_t* plain) {
  for (int64_t j = 0; j < kTileKeys; j += kLanes) {
    const U16 even = narrow_act(load(rows + j)), odd = narrow_act(load(rows + kTileKeys + j));
    store_pair(pairs + j * 2, even, odd);
    if (plain == nullptr) continue;
    memcpy(plain + j, &even, sizeof even);
    memcpy(plain + kTileKeys + j, &odd, sizeof odd);
  }
}

// The tile of queries from `first`, a multiple of kAmxQueries, against the loaded tile of keys.
void tile_gradients(const invar_attention_backward_args& args, const BackwardPlan& plan,
                    const TransposedQueries& transposed, const Sequence& sequence, int64_t s, int64_t head,
                    int64_t chunk, int64_t first, int64_t key, int64_t keys, const TileState& state) {
  using Weights = Softmax<uint16_t>;
  const invar_attention_args& forward = args.forward;
  const int64_t dim = forward.head_dim, token = sequence.first_query + first;
  const int64_t rows = smaller(kAmxQueries, sequence.queries - first);
  const SoftCap cap(forward.soft_cap, Weights::kUnit);
  const F32 scale = set(forward.scale * Weights::kUnit);
  const float* lse = forward.lse + head * plan.query_tokens + token;
  const float* delta = plan.delta(head) + token;
  copy_rows(static_cast<const uint16_t*>(forward.q) + token * forward.ldq + head * dim, forward.ldq, rows, kAmxQueries,
            dim, state.queries);
  copy_rows(static_cast<const uint16_t*>(args.d_out) + token * forward.ldo + head * dim, forward.ldo, rows, kAmxQueries,
            dim, state.d_out);

  for (int64_t row = 0; row < kAmxQueries; row += kAmxRows) {
    const int64_t group = larger(0, smaller(kAmxRows, rows - row));
    const bool sees = group > 0 && sequence.end_visible(first + row + group - 1) > key;
    uint16_t* weight_pairs = state.weight_pairs + row * kTileKeys;
    uint16_t* d_score_pairs = state.d_score_pairs + row * kTileKeys;
    if (!sees) {
      memset(weight_pairs, 0, kAmxRows * kTileKeys * sizeof(uint16_t));
      memset(d_score_pairs, 0, kAmxRows * kTileKeys * sizeof(uint16_t));
      continue;
    }
    pair_product(
        {state.queries + row * dim, dim, state.key_pairs, kTileKeys, state.scores, kTileKeys, kTileKeys, dim, false});
    pair_product(
        {state.d_out + row * dim, dim, state.value_pairs, kTileKeys, state.d_scores, kTileKeys, kTileKeys, dim, false});
    for (int64_t r = 0; r < kAmxRows; ++r) {
      float* scores = state.scores + r * kTileKeys;
      float* d_scores = state.d_scores + r * kTileKeys;
      if (r >= group) {
        memset(scores, 0, kTileKeys * sizeof(float));
        memset(d_scores, 0, kTileKeys * sizeof(float));
        continue;
      }
      const int64_t i = first + row + r;
      for (int64_t j = 0; j < kTileKeys; j += kLanes) store(scores + j, load(scores + j) * scale);
      const Range visible{smaller(kTileKeys, larger(0, sequence.first_visible(i) - key)),
                          larger(0, smaller(keys, sequence.end_visible(i) - key))};
      row_gradient<uint16_t>(scores, d_scores, visible, kTileKeys, cap, lse[row + r] * Weights::kUnit, delta[row + r]);
    }
    for (int64_t r = 0; r < kAmxRows; r += 2) {
      store_row_pair(state.scores + r * kTileKeys, weight_pairs + r * kTileKeys, nullptr);
      store_row_pair(state.d_scores + r * kTileKeys, d_score_pairs + r * kTileKeys, state.d_score_rows + r * kTileKeys);
    }
    pair_product({state.d_score_rows, kTileKeys, state.keys, dim, state.d_q, dim, dim, kTileKeys, false});
    for (int64_t r = 0; r < group; ++r) {
      // d_q's part exists only for queries that see the chunk.
      const int64_t i = first + row + r;
      if (sequence.end_visible(i) <= key || sequence.first_visible(i) >= key + keys) continue;
      float* to = plan.d_q(chunk, head, token + row + r);
      for (int64_t c = 0; c < dim; c += kLanes) store(to + c, load(to + c) + load(state.d_q + r * dim + c));
    }
  }

  const uint16_t* queries_transposed = transposed.tile(sequence, s, head, first / kAmxQueries);
  const uint16_t* d_out_transposed = queries_transposed + kAmxQueries * dim;
  for (int64_t c = 0; c < dim; c += kAmxRows) {
    pair_product({d_out_transposed + c * kAmxQueries, kAmxQueries, state.weight_pairs, kTileKeys,
                  state.d_v + c * kTileKeys, kTileKeys, kTileKeys, kAmxQueries, true});
    pair_product({queries_transposed + c * kAmxQueries, kAmxQueries, state.d_score_pairs, kTileKeys,
                  state.d_k + c * kTileKeys, kTileKeys, kTileKeys, kAmxQueries, true});
  }
}

// from [dim, kTileKeys], times factor, to `keys` rows of dim elements.
void store_transposed(const float* from, int64_t dim, int64_t keys, float factor, float* to) {
  for (int64_t j = 0; j < keys; j += kLanes) {
    for (int64_t c = 0; c < dim; c += kLanes) {
      F32 block[kLanes];
      for (int64_t k = 0; k < kLanes; ++k) block[k] = load(from + (c + k) * kTileKeys + j);
      transpose(block);
      for (int64_t k = 0; k < smaller(kLanes, keys - j); ++k) store(to + (j + k) * dim + c, block[k] * factor);
    }
  }
}

void chunk_gradients(const invar_attention_backward_args& args, const BackwardPlan& plan,
                     const TransposedQueries& transposed, int64_t s, int64_t head, int64_t chunk,
                     const TileState& state) {
  const invar_attention_args& forward = args.forward;
  const Sequence sequence(forward, s);
  const int64_t dim = forward.head_dim, kv_head = head / (forward.heads / forward.kv_heads);
  const int64_t size = chunk_size(sequence.keys);
  const int64_t begin = chunk * size, end = smaller(sequence.keys, begin + size);
  if (begin >= end) return;
  const Range queries = sequence.seeing(begin, end);
  for (int64_t i = queries.first; i < queries.end; ++i) {
    memset(plan.d_q(chunk, head, sequence.first_query + i), 0, static_cast<size_t>(dim) * sizeof(float));
  }
  configure_tiles();
  for (int64_t key = begin; key < end; key += kTileKeys) {
    const int64_t keys = smaller(kTileKeys, end - key), token = sequence.first_key + key;
    copy_rows(static_cast<const uint16_t*>(forward.v) + token * forward.ldv + kv_head * dim, forward.ldv, keys,
              kTileKeys, dim, state.rows);
    pair_columns(state.rows, kTileKeys, dim, state.value_pairs);
    copy_rows(static_cast<const uint16_t*>(forward.k) + token * forward.ldk + kv_head * dim, forward.ldk, keys,
              kTileKeys, dim, state.rows);
    pair_columns(state.rows, kTileKeys, dim, state.key_pairs);
    pair_rows(state.rows, kTileKeys, dim, state.keys);
    memset(state.d_k, 0, static_cast<size_t>(2 * kTileKeys * dim) * sizeof(float));  // d_v lies behind it
    const Range seeing = sequence.seeing(key, key + keys);
    for (int64_t first = seeing.first / kAmxQueries * kAmxQueries; first < seeing.end; first += kAmxQueries) {
      tile_gradients(args, plan, transposed, sequence, s, head, chunk, first, key, keys, state);
    }
    // The queries did not carry the scale; store_gradients takes the softmax's unit off again.
    store_transposed(state.d_k, dim, keys, forward.scale * Softmax<uint16_t>::kUnit, plan.d_k(head, token));
    store_transposed(state.d_v, dim, keys, 1, plan.d_v(head, token));
  }
  TILE_RELEASE();
}

}  // namespace

int32_t attention_backward(Context& context, const invar_attention_backward_args& args) {
  const invar_attention_args& forward = args.forward;
  const int64_t dim = forward.head_dim;
  if (forward.sequences == 0) return kOk;
  if (forward.dtype == kF32 || dim % 32 != 0) return avx512::attention_backward(context, args);
  BackwardPlan plan(forward);
  TransposedQueries transposed{nullptr, dim, forward.heads};
  const int64_t query_tiles = first_tile(plan.query_tokens, forward.sequences, kAmxQueries) + 1;
  const int64_t transposed_floats = query_tiles * forward.heads * transposed.tile_elements() / 2;
  const int64_t own = TileState::floats(dim);
  if (!reserve_shared_scratch(context, kScratchOperation,
                              static_cast<size_t>(plan.floats() + transposed_floats) * sizeof(float)) ||
      !reserve_worker_scratch(context, kScratchOperation, static_cast<size_t>(own) * sizeof(float))) {
    return kResourceExhausted;
  }
  plan.memory = static_cast<float*>(shared_scratch(context, kScratchOperation));
  transposed.tiles = reinterpret_cast<uint16_t*>(plan.memory + plan.floats());
  make_deltas<uint16_t>(context, args, plan);
  transpose_queries(context, args, transposed);
  const int64_t pairs = forward.sequences * forward.heads;
  parallel_for(context, plan.chunks * pairs, [&](int64_t item, int32_t worker) {
    const int64_t pair = item % pairs;
    const TileState state(static_cast<float*>(worker_scratch(context, kScratchOperation, worker)), dim);
    chunk_gradients(args, plan, transposed, pair / forward.heads, pair % forward.heads, item / pairs, state);
  });
  store_gradients<uint16_t>(context, args, plan);
  return kOk;
}

}  // namespace INVAR_LEVEL_NAME
}  // namespace invar::cpu
