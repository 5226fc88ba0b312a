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

// load_rows for a cache that comes from memory: asks for the next tile's rows on the way.
template <typename Act>
void load_rows_ahead(const Act* from, int64_t ld, int64_t rows, int64_t dim, float* to, int64_t padded) {
  constexpr int64_t kLine = 64;
  const int64_t bytes = dim * static_cast<int64_t>(sizeof(Act));
  for (int64_t r = 0; r < rows; ++r) {
    // An address behind the cache is harmless.
    const uintptr_t next =
        reinterpret_cast<uintptr_t>(from + r * ld) + static_cast<uintptr_t>(kTileKeys * ld) * sizeof(Act);
    for (int64_t b = 0; b < bytes; b += kLine)
      __builtin_prefetch(reinterpret_cast<const void*>(next + static_cast<uintptr_t>(b)));
    load_rows(from + r * ld, ld, 1, dim, 1, to + r * padded, padded);
  }
}

void clear_rows(float* rows, int64_t count) {
  if (count > 0) memset(rows, 0, static_cast<size_t>(count) * sizeof(float));
}

// The lanes' sums of four vectors.
INVAR_INLINE void add_lanes_of_four(F32 a, F32 b, F32 c, F32 d, float* to) {
#if defined(__AVX512F__)
  // Twice two vectors are interleaved and their halves added: each 128-bit lane then holds its parts of a, b, c, d.
  const F32 ab = _mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b);
  const F32 cd = _mm512_unpacklo_ps(c, d) + _mm512_unpackhi_ps(c, d);
  const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const F32 lanes = _mm512_castpd_ps(low) + _mm512_castpd_ps(high);
  const __m256 eight = _mm512_castps512_ps256(lanes) + _mm512_extractf32x8_ps(lanes, 1);
  _mm_storeu_ps(to, _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1));
#else
  to[0] = add_lanes(a);
  to[1] = add_lanes(b);
  to[2] = add_lanes(c);
  to[3] = add_lanes(d);
#endif
}

// to[j] = query . rows[j] for j in [0, count); count is a multiple of kLanes, so of four.
void dot_rows(const float* query, const float* rows, int64_t padded, int64_t count, float* to) {
  for (int64_t j = 0; j < count; j += 4) {
    const float* row = rows + j * padded;
    F32 sums[4] = {};
    for (int64_t c = 0; c < padded; c += kLanes) {
      const F32 q = load(query + c);
      for (int64_t k = 0; k < 4; ++k) sums[k] = fma(q, load(row + k * padded + c), sums[k]);
    }
    add_lanes_of_four(sums[0], sums[1], sums[2], sums[3], to + j);
  }
}

template <typename Act>
void attend_chunk(const invar_attention_args& args, const Plan& plan, int64_t s, int64_t kv_head, int64_t chunk,
                  float* partials, float* memory) {
  const Sequence sequence(args, s);
  const int64_t dim = args.head_dim, padded = plan.padded, rows = plan.group * sequence.queries;
  const SoftCap cap(args.soft_cap, Softmax<Act>::kUnit);
  float* queries = memory;
  float* keys = queries + plan.rows * padded;
  float* values = keys + kTileKeys * padded;
  float* scores = values + kTileKeys * padded;  // [kTileRows, kTileKeys]
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
    const Act* k = static_cast<const Act*>(args.k) + token * args.ldk + kv_head * dim;
    const Act* v = static_cast<const Act*>(args.v) + token * args.ldv + kv_head * dim;
    load_rows_ahead(v, args.ldv, count, dim, values, padded);
    load_rows_ahead(k, args.ldk, count, dim, keys, padded);
    clear_rows(keys + count * padded, (cols - count) * padded);
    for (int64_t row = 0; row < rows; row += kTileRows) {
      const int64_t group = smaller(kTileRows, rows - row);
      for (int64_t r = row; r < row + group; ++r) {
        const int64_t i = r % sequence.queries;
        float* row_scores = scores + (r - row) * kTileKeys;
        dot_rows(queries + r * padded, keys, padded, cols, row_scores);
        const Range visible{smaller(cols, larger(0, sequence.first_visible(i) - key)),
                            larger(0, smaller(count, sequence.end_visible(i) - key))};
        const Partial partial(partials + r * Partial::floats(padded));
        soften_row<Act>(row_scores, visible, cols, cap, partial.sums, partial.largest, partial.out, padded);
      }
      const Partial first(partials + row * Partial::floats(padded));
      row_tile_product(group, padded,
                       {scores, kTileKeys, 1, values, padded, first.out, Partial::floats(padded), count, true});
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
  const int64_t own = plan.rows * plan.padded + 2 * kTileKeys * plan.padded + kTileRows * kTileKeys;
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
