#include "core/device/cpu/attention/attention.h"
#include "core/device/cpu/attention/query_blocks.h"
#include "core/device/cpu/attention/softmax.h"
#include "core/device/cpu/attention/tiles.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

constexpr int64_t kFewQueries = 4;  // up to here a sequence is decoded rather than tiled

// Keys and values of every (sequence, kv head) in FP32 tiles: a tile is the keys' transpose [dim, kTileKeys], then
// the values [kTileKeys, padded].
struct PackedKeys {
  PackedKeys(const invar_attention_args& args, float* memory)
      : tiles(memory),
        padded(round_up(args.head_dim, kLanes)),
        tile_floats(kTileKeys * (args.head_dim + padded)),
        kv_heads(args.kv_heads) {}

  float* tile(const Sequence& sequence, int64_t s, int64_t kv_head, int64_t key_tile) const {
    return tiles + (kv_heads * (first_tile(sequence.first_key, s, kTileKeys) + key_tile) + kv_head) * tile_floats;
  }

  float* tiles;
  int64_t padded, tile_floats, kv_heads;
};

template <typename Act>
void pack_keys(Context& context, const invar_attention_args& args, const PackedKeys& packed) {
  parallel_for(context, args.sequences * args.kv_heads, [&](int64_t item, int32_t) {
    const int64_t s = item / args.kv_heads, kv_head = item % args.kv_heads;
    const Sequence sequence(args, s);
    for (int64_t key = 0; key < sequence.keys; key += kTileKeys) {
      const int64_t keys = smaller(kTileKeys, sequence.keys - key), token = sequence.first_key + key;
      const Act* k = static_cast<const Act*>(args.k) + token * args.ldk + kv_head * args.head_dim;
      const Act* v = static_cast<const Act*>(args.v) + token * args.ldv + kv_head * args.head_dim;
      float* transposed = packed.tile(sequence, s, kv_head, key / kTileKeys);
      float* values = transposed + kTileKeys * args.head_dim;
      load_rows(k, args.ldk, keys, args.head_dim, 1, values, packed.padded);
      transpose_rows(values, packed.padded, keys, args.head_dim, transposed);
      load_rows(v, args.ldv, keys, args.head_dim, 1, values, packed.padded);
    }
  });
}

// Worker memory of one block of queries.
struct BlockState {
  BlockState(float* memory, int64_t padded)
      : queries(memory),
        out(queries + kTileQueries * padded),
        scores(out + kTileQueries * padded),
        sums(scores + kTileRows * kTileKeys),
        largest(sums + kTileQueries * kLanes) {}
  static int64_t floats(int64_t padded) {
    return 2 * kTileQueries * padded + kTileRows * kTileKeys + kTileQueries * (kLanes + 1);
  }

  float* queries;  // [kTileQueries, padded], scaled
  float* out;      // [kTileQueries, padded], not yet divided by the sums
  float* scores;   // [kTileRows, kTileKeys], then the weights
  float* sums;     // [kTileQueries, kLanes]: each lane its own part
  float* largest;  // [kTileQueries]
};

template <typename Act>
void attend_block(const invar_attention_args& args, const PackedKeys& packed, int64_t s, int64_t head, int64_t first,
                  const BlockState& state) {
  const Sequence sequence(args, s);
  const int64_t dim = args.head_dim, padded = packed.padded, kv_head = head / (args.heads / args.kv_heads);
  const int64_t rows = smaller(kTileQueries, sequence.queries - first), token = sequence.first_query + first;
  const SoftCap cap(args.soft_cap, Softmax<Act>::kUnit);
  load_rows(static_cast<const Act*>(args.q) + token * args.ldq + head * dim, args.ldq, rows, dim,
            args.scale * Softmax<Act>::kUnit, state.queries, padded);
  memset(state.out, 0, static_cast<size_t>(rows * padded) * sizeof(float));
  memset(state.sums, 0, static_cast<size_t>(rows * kLanes) * sizeof(float));
  for (int64_t i = 0; i < rows; ++i) state.largest[i] = -__builtin_inff();

  const int64_t last_key = sequence.end_visible(first + rows - 1);
  for (int64_t key = sequence.first_visible(first) / kTileKeys * kTileKeys; key < last_key; key += kTileKeys) {
    const float* transposed = packed.tile(sequence, s, kv_head, key / kTileKeys);
    const float* values = transposed + kTileKeys * dim;
    for (int64_t row = 0; row < rows; row += kTileRows) {
      const int64_t group = smaller(kTileRows, rows - row);
      // The group's last query sees furthest; columns beyond are not computed.
      const int64_t seen = smaller(kTileKeys, sequence.end_visible(first + row + group - 1) - key);
      if (seen <= 0 || sequence.first_visible(first + row) >= key + kTileKeys) continue;
      const int64_t cols = round_up(seen, kLanes);
      row_tile_product(
          group, cols,
          {state.queries + row * padded, padded, 1, transposed, kTileKeys, state.scores, kTileKeys, dim, false});
      for (int64_t r = 0; r < group; ++r) {
        const int64_t i = row + r;
        const Range visible{smaller(cols, larger(0, sequence.first_visible(first + i) - key)),
                            larger(0, smaller(cols, sequence.end_visible(first + i) - key))};
        soften_row<Act>(state.scores + r * kTileKeys, visible, cols, cap, state.sums + i * kLanes, state.largest + i,
                        state.out + i * padded, padded);
      }
      row_tile_product(group, padded,
                       {state.scores, kTileKeys, 1, values, padded, state.out + row * padded, padded, seen, true});
    }
  }

  finish_block<Act>(args, head, token, rows, padded, state.out, state.sums, state.largest);
}

template <typename Act>
int32_t attention_tiled(Context& context, const invar_attention_args& args) {
  const int64_t query_blocks = count_query_blocks(args);
  const int64_t key_tiles = first_tile(args.k_offsets[args.sequences], args.sequences, kTileKeys) + 1;
  PackedKeys packed(args, nullptr);
  const int64_t shared = key_tiles * args.kv_heads * packed.tile_floats, own = BlockState::floats(packed.padded);
  if (!reserve_shared_scratch(context, kScratchOperation, static_cast<size_t>(shared) * sizeof(float)) ||
      !reserve_worker_scratch(context, kScratchOperation, static_cast<size_t>(own) * sizeof(float))) {
    return kResourceExhausted;
  }
  packed.tiles = static_cast<float*>(shared_scratch(context, kScratchOperation));
  pack_keys<Act>(context, args, packed);
  parallel_for(context, query_blocks * args.heads, [&](int64_t item, int32_t worker) {
    // From the end: a sequence's last blocks see the most keys, and the longest work should start first.
    const int64_t turned = query_blocks * args.heads - 1 - item;
    const QueryBlock block = find_query_block(args, turned / args.heads);
    const BlockState state(static_cast<float*>(worker_scratch(context, kScratchOperation, worker)), packed.padded);
    attend_block<Act>(args, packed, block.sequence, turned % args.heads, block.first, state);
  });
  return kOk;
}

}  // namespace

int32_t attention(Context& context, const invar_attention_args& args) {
  int64_t most_queries = 0;
  for (int64_t s = 0; s < args.sequences; ++s) {
    most_queries = larger(most_queries, args.q_offsets[s + 1] - args.q_offsets[s]);
  }
  if (most_queries == 0) return kOk;
  if (most_queries <= kFewQueries) return attention_decode(context, args);
  return args.dtype == kF32 ? attention_tiled<float>(context, args) : attention_tiled<uint16_t>(context, args);
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
