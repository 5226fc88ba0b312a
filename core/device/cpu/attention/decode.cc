#include "core/device/cpu/attention/attention.h"
#include "core/device/cpu/attention/softmax.h"
#include "core/device/cpu/attention/tiles.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

constexpr int64_t kChunkKeys = 512;  // a task's share of one sequence's cache

// What a chunk leaves for each of its rows (a query of one of the group's heads); merged in the chunks' order.
struct Partial {
  static int64_t floats(int64_t padded) { return 1 + kLanes + padded; }
  Partial(float* memory) : largest(memory), sums(memory + 1), out(sums + kLanes) {}  // NOLINT: implicit by design
  float* largest;
  float* sums;  // [kLanes]
  float* out;   // [padded]
};

struct Plan {
  explicit Plan(const invar_attention_args& args)
      : group(args.heads / args.kv_heads), padded(round_up(args.head_dim, kLanes)) {
    for (int64_t s = 0; s < args.sequences; ++s) {
      const Sequence sequence(args, s);
      rows = larger(rows, group * sequence.queries);
      chunks = larger(chunks, ceil_div(sequence.keys, kChunkKeys));
    }
  }
  int64_t items(const invar_attention_args& args) const { return args.sequences * args.kv_heads * chunks; }
  int64_t partial_at(int64_t s, int64_t kv_head, int64_t chunk, int64_t kv_heads, int64_t row) const {
    return (((s * kv_heads + kv_head) * chunks + chunk) * rows + row) * Partial::floats(padded);
  }

  int64_t group, padded;
  int64_t rows = 0, chunks = 0;  // the most of any sequence
};

template <typename Act>
void attend_chunk(const invar_attention_args& args, const Plan& plan, int64_t s, int64_t kv_head, int64_t chunk,
                  float* partials, float* memory) {
  const Sequence sequence(args, s);
  const int64_t dim = args.head_dim, padded = plan.padded, rows = plan.group * sequence.queries;
  const SoftCap cap(args.soft_cap, Softmax<Act>::kUnit);
  float* queries = memory;
  float* keys = queries + plan.rows * padded;
  float* values = keys + kTileKeys * padded;
  float* scores = values + kTileKeys * padded;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = sequence.first_query + row % sequence.queries;
    const int64_t head = kv_head * plan.group + row / sequence.queries;
    load_rows(static_cast<const Act*>(args.q) + token * args.ldq + head * dim, 0, 1, dim,
              args.scale * Softmax<Act>::kUnit, queries + row * padded, padded);
    const Partial partial(partials + row * Partial::floats(padded));
    memset(partial.sums, 0, static_cast<size_t>(kLanes + padded) * sizeof(float));
    *partial.largest = -__builtin_inff();
  }
  const int64_t end = smaller(sequence.keys, (chunk + 1) * kChunkKeys);
  for (int64_t key = larger(chunk * kChunkKeys, sequence.first_visible(0)); key < end; key += kTileKeys) {
    const int64_t count = smaller(kTileKeys, end - key), cols = round_up(count, kLanes);
    const int64_t token = sequence.first_key + key;
    load_rows(static_cast<const Act*>(args.k) + token * args.ldk + kv_head * dim, args.ldk, count, dim, 1, keys,
              padded);
    load_rows(static_cast<const Act*>(args.v) + token * args.ldv + kv_head * dim, args.ldv, count, dim, 1, values,
              padded);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t i = row % sequence.queries;
      for (int64_t j = 0; j < count; ++j) {
        F32 sum = zero();
        for (int64_t c = 0; c < padded; c += kLanes) {
          sum = fma(load(queries + row * padded + c), load(keys + j * padded + c), sum);
        }
        scores[j] = add_lanes(sum);
      }
      for (int64_t j = count; j < cols; ++j) scores[j] = 0;
      const Range visible{smaller(cols, larger(0, sequence.first_visible(i) - key)),
                          larger(0, smaller(count, sequence.end_visible(i) - key))};
      const Partial partial(partials + row * Partial::floats(padded));
      soften_row<Act>(scores, visible, cols, cap, partial.sums, partial.largest, partial.out, padded);
      row_tile_product(1, padded, {scores, kTileKeys, 1, values, padded, partial.out, padded, count, true});
    }
  }
}

template <typename Act>
void merge_row(const invar_attention_args& args, const Plan& plan, int64_t s, int64_t kv_head, int64_t row,
               float* partials, float* out) {
  const Sequence sequence(args, s);
  const int64_t dim = args.head_dim, padded = plan.padded, chunks = ceil_div(sequence.keys, kChunkKeys);
  float largest = -__builtin_inff();
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Partial partial(partials + plan.partial_at(s, kv_head, chunk, args.kv_heads, row));
    largest = *partial.largest > largest ? *partial.largest : largest;
  }
  memset(out, 0, static_cast<size_t>(padded) * sizeof(float));
  double sum = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Partial partial(partials + plan.partial_at(s, kv_head, chunk, args.kv_heads, row));
    if (*partial.largest == -__builtin_inff()) continue;  // outside the window
    const F32 shrink = Softmax<Act>::power(set(*partial.largest - largest));
    sum += static_cast<double>(add_lanes(load(partial.sums) * shrink));
    for (int64_t c = 0; c < padded; c += kLanes) store(out + c, fma(load(partial.out + c), shrink, load(out + c)));
  }
  const int64_t token = sequence.first_query + row % sequence.queries;
  const int64_t head = kv_head * plan.group + row / sequence.queries;
  const float inverse = static_cast<float>(1 / sum);
  Act* to = static_cast<Act*>(args.out) + token * args.ldo + head * dim;
  for_vectors(dim, [&](int64_t c, auto part) { store(to + c, load(out + c, part) * inverse, part); });
  if (args.lse != nullptr) {
    const double lse = static_cast<double>(largest * Softmax<Act>::kInverseUnit) + __builtin_log(sum);
    args.lse[head * args.q_offsets[args.sequences] + token] = static_cast<float>(lse);
  }
}

template <typename Act>
int32_t decode(Context& context, const invar_attention_args& args) {
  const Plan plan(args);
  const int64_t shared = plan.items(args) * plan.rows * Partial::floats(plan.padded);
  const int64_t own = plan.rows * plan.padded + 2 * kTileKeys * plan.padded + kTileKeys;
  if (!reserve_shared_scratch(context, kScratchOperation, static_cast<size_t>(shared) * sizeof(float)) ||
      !reserve_worker_scratch(context, kScratchOperation, static_cast<size_t>(own) * sizeof(float))) {
    return kResourceExhausted;
  }
  float* partials = static_cast<float*>(shared_scratch(context, kScratchOperation));
  parallel_for(context, plan.items(args), [&](int64_t item, int32_t worker) {
    const int64_t chunk = item % plan.chunks, kv_head = item / plan.chunks % args.kv_heads;
    const int64_t s = item / plan.chunks / args.kv_heads;
    attend_chunk<Act>(args, plan, s, kv_head, chunk, partials + plan.partial_at(s, kv_head, chunk, args.kv_heads, 0),
                      static_cast<float*>(worker_scratch(context, kScratchOperation, worker)));
  });
  // Small: one task.
  parallel_for(context, 1, [&](int64_t, int32_t worker) {
    float* out = static_cast<float*>(worker_scratch(context, kScratchOperation, worker));
    for (int64_t s = 0; s < args.sequences; ++s) {
      for (int64_t kv_head = 0; kv_head < args.kv_heads; ++kv_head) {
        const int64_t rows = plan.group * Sequence(args, s).queries;
        for (int64_t row = 0; row < rows; ++row) merge_row<Act>(args, plan, s, kv_head, row, partials, out);
      }
    }
  });
  return kOk;
}

}  // namespace

int32_t attention_decode(Context& context, const invar_attention_args& args) {
  return args.dtype == kF32 ? decode<float>(context, args) : decode<uint16_t>(context, args);
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
