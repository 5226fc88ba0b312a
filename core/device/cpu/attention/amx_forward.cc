// The forward pass with its two products on AMX tiles: queries, keys, weights and values in BF16, sums in FP32. Scores
// are scaled after the product. F32, decoding and head sizes that are no multiple of 32 take the AVX-512 version.
#include "core/device/cpu/attention/amx_products.h"
#include "core/device/cpu/attention/attention.h"
#include "core/device/cpu/attention/query_blocks.h"

namespace invar::cpu {

namespace avx512 {
int32_t attention(Context& context, const invar_attention_args& args);
}

namespace INVAR_LEVEL_NAME {
namespace {

// Keys and values of every (sequence, kv head) as B operands: the keys' columns in pairs, then the values' rows.
struct PackedKeys {
  uint16_t* tile(const Sequence& sequence, int64_t s, int64_t kv_head, int64_t key_tile) const {
    const int64_t number = first_tile(sequence.first_key, s, kTileKeys) + key_tile;
    return tiles + (kv_heads * number + kv_head) * tile_elements();
  }
  int64_t tile_elements() const { return 2 * kTileKeys * dim; }

  uint16_t* tiles;
  int64_t dim, kv_heads;
};

void pack_keys(Context& context, const invar_attention_args& args, const PackedKeys& packed) {
  const int64_t dim = args.head_dim;
  parallel_for(context, args.sequences * args.kv_heads, [&](int64_t item, int32_t worker) {
    const int64_t s = item / args.kv_heads, kv_head = item % args.kv_heads;
    const Sequence sequence(args, s);
    uint16_t* rows = static_cast<uint16_t*>(worker_scratch(context, kScratchOperation, worker));
    for (int64_t key = 0; key < sequence.keys; key += kTileKeys) {
      const int64_t keys = smaller(kTileKeys, sequence.keys - key), token = sequence.first_key + key;
      const uint16_t* k = static_cast<const uint16_t*>(args.k) + token * args.ldk + kv_head * dim;
      const uint16_t* v = static_cast<const uint16_t*>(args.v) + token * args.ldv + kv_head * dim;
      uint16_t* to = packed.tile(sequence, s, kv_head, key / kTileKeys);
      copy_rows(k, args.ldk, keys, kTileKeys, dim, rows);
      pair_columns(rows, kTileKeys, dim, to);
      copy_rows(v, args.ldv, keys, kTileKeys, dim, rows);
      pair_rows(rows, kTileKeys, dim, to + kTileKeys * dim);
    }
  });
}

// Worker memory of one block of queries.
struct BlockState {
  BlockState(float* memory, int64_t dim)
      : out(memory),
        scores(out + kTileQueries * dim),
        sums(scores + kAmxRows * kTileKeys),
        largest(sums + kTileQueries * kLanes),
        queries(reinterpret_cast<uint16_t*>(largest + kTileQueries)),
        weights(queries + kTileQueries * dim) {}
  static int64_t floats(int64_t dim) {
    return kTileQueries * dim + kAmxRows * kTileKeys + kTileQueries * (kLanes + 1) +
           (kTileQueries * dim + kAmxRows * kTileKeys) / 2;
  }

  float* out;         // [kTileQueries, dim]
  float* scores;      // [kAmxRows, kTileKeys], then the weights
  float* sums;        // [kTileQueries, kLanes]
  float* largest;     // [kTileQueries]
  uint16_t* queries;  // [kTileQueries, dim]
  uint16_t* weights;  // [kAmxRows, kTileKeys]
};

void attend_block(const invar_attention_args& args, const PackedKeys& packed, int64_t s, int64_t head, int64_t first,
                  const BlockState& state) {
  using Weights = Softmax<uint16_t>;
  const Sequence sequence(args, s);
  const int64_t dim = args.head_dim, kv_head = head / (args.heads / args.kv_heads);
  const int64_t rows = smaller(kTileQueries, sequence.queries - first), token = sequence.first_query + first;
  const SoftCap cap(args.soft_cap, Weights::kUnit);
  const F32 scale = set(args.scale * Weights::kUnit);
  copy_rows(static_cast<const uint16_t*>(args.q) + token * args.ldq + head * dim, args.ldq, rows, kTileQueries, dim,
            state.queries);
  memset(state.out, 0, static_cast<size_t>(kTileQueries * dim) * sizeof(float));
  memset(state.sums, 0, static_cast<size_t>(kTileQueries * kLanes) * sizeof(float));
  for (int64_t i = 0; i < kTileQueries; ++i) state.largest[i] = -__builtin_inff();

  configure_tiles();
  const int64_t last_key = sequence.end_visible(first + rows - 1);
  for (int64_t key = sequence.first_visible(first) / kTileKeys * kTileKeys; key < last_key; key += kTileKeys) {
    const uint16_t* keys = packed.tile(sequence, s, kv_head, key / kTileKeys);
    const uint16_t* values = keys + kTileKeys * dim;
    for (int64_t row = 0; row < rows; row += kAmxRows) {
      const int64_t group = smaller(kAmxRows, rows - row);
      const int64_t seen = smaller(kTileKeys, sequence.end_visible(first + row + group - 1) - key);
      if (seen <= 0 || sequence.first_visible(first + row) >= key + kTileKeys) continue;
      // Rows beyond the group are zero queries: their weights must only be finite.
      pair_product({state.queries + row * dim, dim, keys, kTileKeys, state.scores, kTileKeys, kTileKeys, dim, false});
      for (int64_t r = 0; r < group; ++r) {
        const int64_t i = row + r;
        float* scores = state.scores + r * kTileKeys;
        for (int64_t j = 0; j < kTileKeys; j += kLanes) store(scores + j, load(scores + j) * scale);
        const Range visible{smaller(kTileKeys, larger(0, sequence.first_visible(first + i) - key)),
                            larger(0, smaller(kTileKeys, sequence.end_visible(first + i) - key))};
        soften_row<uint16_t>(scores, visible, kTileKeys, cap, state.sums + i * kLanes, state.largest + i,
                             state.out + i * dim, dim);
      }
      for (int64_t j = 0; j < kAmxRows * kTileKeys; j += kLanes) {
        store_act(state.weights + j, load(state.scores + j), Full{});
      }
      pair_product({state.weights, kTileKeys, values, dim, state.out + row * dim, dim, dim, kTileKeys, true});
    }
  }
  TILE_RELEASE();
  finish_block<uint16_t>(args, head, token, rows, dim, state.out, state.sums, state.largest);
}

}  // namespace

int32_t attention(Context& context, const invar_attention_args& args) {
  int64_t most_queries = 0;
  for (int64_t s = 0; s < args.sequences; ++s) {
    most_queries = larger(most_queries, args.q_offsets[s + 1] - args.q_offsets[s]);
  }
  if (args.dtype == kF32 || args.head_dim % 32 != 0 || most_queries <= kAmxRows) {
    return avx512::attention(context, args);
  }
  const int64_t query_blocks = count_query_blocks(args);
  PackedKeys packed{nullptr, args.head_dim, args.kv_heads};
  const int64_t key_tiles = first_tile(args.k_offsets[args.sequences], args.sequences, kTileKeys) + 1;
  const int64_t shared = key_tiles * args.kv_heads * packed.tile_elements();
  const int64_t own = larger(BlockState::floats(args.head_dim), kTileKeys * args.head_dim);
  if (!reserve_shared_scratch(context, kScratchOperation, static_cast<size_t>(shared) * sizeof(uint16_t)) ||
      !reserve_worker_scratch(context, kScratchOperation, static_cast<size_t>(own) * sizeof(float))) {
    return kResourceExhausted;
  }
  packed.tiles = static_cast<uint16_t*>(shared_scratch(context, kScratchOperation));
  pack_keys(context, args, packed);
  parallel_for(context, query_blocks * args.heads, [&](int64_t item, int32_t worker) {
    // From the end, as the AVX-512 version.
    const int64_t turned = query_blocks * args.heads - 1 - item;
    const QueryBlock block = find_query_block(args, turned / args.heads);
    const BlockState state(static_cast<float*>(worker_scratch(context, kScratchOperation, worker)), args.head_dim);
    attend_block(args, packed, block.sequence, turned % args.heads, block.first, state);
  });
  return kOk;
}

}  // namespace INVAR_LEVEL_NAME
}  // namespace invar::cpu
