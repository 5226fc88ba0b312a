#include "core/device/cpu/memory_bound/memory_bound.h"
#include "core/device/cpu/simd/vector.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

template <typename Act>
void rotate(Context& context, const invar_rope_args& args) {
  const int64_t half = args.head_dim / 2;
  const F32 direction = set(args.inverse != 0 ? -1.0f : 1.0f);
  for_pieces(context, args.tokens, rows_in_chunk(args.heads * args.head_dim), [&](int64_t first, int64_t last) {
    for (int64_t token = first; token < last; ++token) {
      const float* cos = args.cos + args.positions[token] * half;
      const float* sin = args.sin + args.positions[token] * half;
      Act* row = static_cast<Act*>(args.x) + token * args.ld;
      for (int64_t head = 0; head < args.heads; ++head) {
        Act* low = row + head * args.head_dim;
        Act* high = low + half;
        for_vectors(half, [&](int64_t i, auto part) {
          const F32 a = load(low + i, part), b = load(high + i, part);
          const F32 c = load(cos + i, part), s = load(sin + i, part) * direction;
          store_act(low + i, fnma(b, s, a * c), part);
          store_act(high + i, fma(a, s, b * c), part);
        });
      }
    }
  });
}

}  // namespace

int32_t rope(Context& context, const invar_rope_args& args) {
  if (args.dtype == kF32) {
    rotate<float>(context, args);
  } else {
    rotate<uint16_t>(context, args);
  }
  return kOk;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
