#include "core/nn/mlp.h"

#include "core/nn/linear.h"
#include "core/nn/norm.h"

namespace invar {
namespace {

invar_swiglu_args gate_args(const Matrix& gate_up, int64_t intermediate, const Matrix& out) {
  invar_swiglu_args args{};
  args.dtype = gate_up.device_dtype();
  args.rows = gate_up.rows;
  args.cols = intermediate;
  args.ld_in = gate_up.ld;
  args.ld_out = out.ld;
  args.gate = gate_up.data;
  args.up = gate_up.columns(intermediate, intermediate).data;
  args.out = out.data;
  return args;
}

}  // namespace

Status mlp_forward(Context& ctx, const MlpShape& shape, const MlpWeights& weights, int64_t layer, bool with_output) {
  const int64_t tokens = ctx.rows().tokens;
  const DType act = ctx.activations();
  const Matrix middle = ctx.saved(layer, Slot::kMiddle);
  INVAR_ASSIGN(const Matrix inv_rms, ctx.save(layer, Slot::kMlpInvRms, DType::kF32, tokens, 1));
  INVAR_ASSIGN(const Matrix normed, ctx.save(layer, Slot::kMlpNorm, act, tokens, shape.hidden));
  INVAR_TRY(norm_forward(ctx, weights.norm, shape.norm_eps, middle, normed, inv_rms.f32()));
  INVAR_ASSIGN(const Matrix gate_up, ctx.save(layer, Slot::kGateUp, act, tokens, 2 * shape.intermediate));
  INVAR_TRY(linear_forward(ctx, weights.gate_up, normed, gate_up));
  if (!with_output) return {};
  INVAR_ASSIGN(const Matrix output, ctx.save(layer + 1, Slot::kInput, DType::kF32, tokens, shape.hidden));
  INVAR_ASSIGN(Scratch gated, ctx.scratch("gated", act, tokens, shape.intermediate));
  INVAR_TRY(ctx.run<&Device::swiglu>("gate.forward", gate_args(gate_up, shape.intermediate, gated.matrix)));
  return linear_forward(ctx, weights.down, gated.matrix, output, &middle);
}

Status mlp_backward(Context& ctx, const MlpShape& shape, const MlpWeights& weights, int64_t layer,
                    const Matrix& residual_gradient, const Matrix& copy) {
  const int64_t tokens = ctx.rows().tokens;
  const DType act = ctx.activations();
  const Matrix gate_up = ctx.saved(layer, Slot::kGateUp);
  {
    INVAR_ASSIGN(Scratch gated, ctx.scratch("gated", act, tokens, shape.intermediate));
    {
      INVAR_ASSIGN(Scratch d_gated, ctx.scratch("d_gated", act, tokens, shape.intermediate));
      INVAR_TRY(linear_data_gradient(ctx, weights.down, copy, d_gated.matrix));
      invar_swiglu_backward_args args{};
      args.forward = gate_args(gate_up, shape.intermediate, gated.matrix);
      args.d_out = d_gated.matrix.data;
      args.d_gate = gate_up.data;  // the gradients take the place of gate and up
      args.d_up = gate_up.columns(shape.intermediate, shape.intermediate).data;
      args.act_out = gated.matrix.data;
      INVAR_TRY(ctx.run<&Device::swiglu_backward>("gate.backward", args));
    }
    INVAR_TRY(linear_weight_gradient(ctx, weights.down, copy, gated.matrix));
  }
  INVAR_TRY(linear_weight_gradient(ctx, weights.gate_up, gate_up, ctx.saved(layer, Slot::kMlpNorm)));
  ctx.drop(layer, Slot::kMlpNorm);
  INVAR_ASSIGN(Scratch d_normed, ctx.scratch("d_norm", act, tokens, shape.hidden));
  INVAR_TRY(linear_data_gradient(ctx, weights.gate_up, gate_up, d_normed.matrix));
  ctx.drop(layer, Slot::kGateUp);
  INVAR_TRY(norm_backward(ctx, weights.norm, d_normed.matrix, ctx.saved(layer, Slot::kMiddle),
                          ctx.saved(layer, Slot::kMlpInvRms).f32(), residual_gradient, /*accumulate=*/true, copy));
  ctx.drop(layer, Slot::kMlpInvRms);
  ctx.drop(layer, Slot::kMiddle);
  return {};
}

}  // namespace invar
