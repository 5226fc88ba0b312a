#include "core/device/cpu/memory_bound/memory_bound.h"
#include "core/device/cpu/simd/math.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

INVAR_INLINE F32 sigmoid_for(F32 x, const float*) { return sigmoid(x); }
INVAR_INLINE F32 sigmoid_for(F32 x, const uint16_t*) { return sigmoid_short(x); }

struct Value {
  F32 value, slope;
};

struct Silu {
  template <typename Act>
  static INVAR_INLINE F32 value(F32 g, const Act* kind) {
    return g * sigmoid_for(g, kind);
  }
  // d silu = s (1 + g (1 - s)) = s + silu (1 - s)
  template <typename Act>
  static INVAR_INLINE Value both(F32 g, const Act* kind) {
    const F32 s = sigmoid_for(g, kind), silu = g * s;
    return {silu, fma(silu, 1.0f - s, s)};
  }
};

// g * sigmoid(2 u) with u = sqrt(2 / pi) (g + 0.044715 g^3).
struct GeluTanh {
  static constexpr float kLinear = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f * kLinear;
  template <typename Act>
  static INVAR_INLINE F32 value(F32 g, const Act* kind) {
    return g * sigmoid_for(g * fma(g * g, set(kCubic), set(kLinear)), kind);
  }
  template <typename Act>
  static INVAR_INLINE Value both(F32 g, const Act* kind) {
    const F32 square = g * g;
    const F32 s = sigmoid_for(g * fma(square, set(kCubic), set(kLinear)), kind), gelu = g * s;
    return {gelu, fma(gelu * (1.0f - s), fma(square, set(3 * kCubic), set(kLinear)), s)};
  }
};

template <typename Function, typename Act>
void forward_rows(Context& context, const invar_swiglu_args& args) {
  for_pieces(context, args.rows, rows_in_chunk(args.cols), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const Act* gate = static_cast<const Act*>(args.gate) + row * args.ld_in;
      const Act* up = static_cast<const Act*>(args.up) + row * args.ld_in;
      Act* out = static_cast<Act*>(args.out) + row * args.ld_out;
      for_vectors(args.cols, [&](int64_t i, auto part) {
        store_act(out + i, Function::value(load(gate + i, part), gate) * load(up + i, part), part);
      });
    }
  });
}

template <typename Function, typename Act>
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
        const F32 u = load(up + i, part), d = load(d_out + i, part);
        const Value gated = Function::both(load(gate + i, part), gate);
        store_act(d_gate + i, d * u * gated.slope, part);
        store_act(d_up + i, d * gated.value, part);
        if (again != nullptr) store_act(again + i, gated.value * u, part);
      });
    }
  });
}

template <typename Function>
void forward(Context& context, const invar_swiglu_args& args) {
  if (args.dtype == kF32) {
    forward_rows<Function, float>(context, args);
  } else {
    forward_rows<Function, uint16_t>(context, args);
  }
}

template <typename Function>
void backward(Context& context, const invar_swiglu_backward_args& args) {
  if (args.forward.dtype == kF32) {
    backward_rows<Function, float>(context, args);
  } else {
    backward_rows<Function, uint16_t>(context, args);
  }
}

}  // namespace

int32_t swiglu(Context& context, const invar_swiglu_args& args) {
  if (args.function == INVAR_GATE_SILU) {
    forward<Silu>(context, args);
  } else {
    forward<GeluTanh>(context, args);
  }
  return kOk;
}

int32_t swiglu_backward(Context& context, const invar_swiglu_backward_args& args) {
  if (args.forward.function == INVAR_GATE_SILU) {
    backward<Silu>(context, args);
  } else {
    backward<GeluTanh>(context, args);
  }
  return kOk;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
