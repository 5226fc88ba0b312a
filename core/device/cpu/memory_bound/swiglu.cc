#include "core/device/cpu/memory_bound/memory_bound.h"
#include "core/device/cpu/simd/math.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

INVAR_INLINE F32 sigmoid_for(F32 x, const float*) { return sigmoid(x); }
INVAR_INLINE F32 sigmoid_for(F32 x, const uint16_t*) { return sigmoid_short(x); }

template <typename Act>
void forward_rows(Context& context, const invar_swiglu_args& args) {
  for_pieces(context, args.rows, rows_in_chunk(args.cols), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const Act* gate = static_cast<const Act*>(args.gate) + row * args.ld_in;
      const Act* up = static_cast<const Act*>(args.up) + row * args.ld_in;
      Act* out = static_cast<Act*>(args.out) + row * args.ld_out;
      for_vectors(args.cols, [&](int64_t i, auto part) {
        const F32 g = load(gate + i, part);
        store_act(out + i, g * sigmoid_for(g, gate) * load(up + i, part), part);
      });
    }
  });
}

template <typename Act>
void backward_rows(Context& context, const invar_swiglu_backward_args& args) {
  const invar_swiglu_args& forward = args.forward;
  for_pieces(context, forward.rows, rows_in_chunk(forward.cols), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const Act* gate = static_cast<const Act*>(forward.gate) + row * forward.ld_in;
      const Act* up = static_cast<const Act*>(forward.up) + row * forward.ld_in;
      const Act* d_out = static_cast<const Act*>(args.d_out) + row * forward.ld_out;
      Act* d_gate = static_cast<Act*>(args.d_gate) + row * forward.ld_in;
      Act* d_up = static_cast<Act*>(args.d_up) + row * forward.ld_in;
      Act* again = args.act_out == nullptr ? nullptr : static_cast<Act*>(args.act_out) + row * forward.ld_out;
      for_vectors(forward.cols, [&](int64_t i, auto part) {
        const F32 g = load(gate + i, part), u = load(up + i, part), d = load(d_out + i, part);
        const F32 s = sigmoid_for(g, gate);
        const F32 silu = g * s;
        // d silu = s (1 + g (1 - s)) = s + silu (1 - s)
        store_act(d_gate + i, d * u * fma(silu, 1.0f - s, s), part);
        store_act(d_up + i, d * silu, part);
        if (again != nullptr) store_act(again + i, silu * u, part);
      });
    }
  });
}

}  // namespace

int32_t swiglu(Context& context, const invar_swiglu_args& args) {
  if (args.dtype == kF32) {
    forward_rows<float>(context, args);
  } else {
    forward_rows<uint16_t>(context, args);
  }
  return kOk;
}

int32_t swiglu_backward(Context& context, const invar_swiglu_backward_args& args) {
  if (args.forward.dtype == kF32) {
    backward_rows<float>(context, args);
  } else {
    backward_rows<uint16_t>(context, args);
  }
  return kOk;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
