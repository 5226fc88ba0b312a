#include "core/nn/mlp.h"

#include "core/nn/linear.h"
#include "core/nn/norm.h"

namespace invar {
namespace {

invar_swiglu_args gate_args(const MlpShape& shape, const Matrix& gate_up, const Matrix& out) {
  invar_swiglu_args args{};
  args.dtype = gate_up.device_dtype();
  args.rows = gate_up.rows;
  args.cols = shape.intermediate;
  args.ld_in = gate_up.ld;
  args.ld_out = out.ld;
  args.gate = gate_up.data;
  args.up = gate_up.columns(shape.intermediate, shape.intermediate).data;
  args.out = out.data;
  args.function = shape.gate;
  return args;
}

}  // namespace

Status mlp_forward(Context& ctx, const MlpShape& shape, const MlpWeights& weights, int64_t layer, bool with_output) {
  const int64_t tokens = ctx.rows().tokens;
  const DType act = ctx.activations();
  const Matrix middle = ctx.saved(layer, Slot::kMiddle);
  INVAR_ASSIGN(const Matrix inv_rms, ctx.save(layer, Slot::kMlpInvRms, DType::kF32, tokens, 1));
  INVAR_ASSIGN(const Matrix normed, ctx.save(layer, Slot::kMlpNorm, act, tokens, shape.hidden));
  INVAR_TRY(norm_forward(ctx, weights.norm, shape.norm, middle, normed, inv_rms.f32()));
  INVAR_ASSIGN(const Matrix gate_up, ctx.save(layer, Slot::kGateUp, act, tokens, 2 * shape.intermediate));
  INVAR_TRY(linear_forward(ctx, weights.gate_up, normed, gate_up));
  const bool has_branch_norm = weights.branch_norm >= 0;
  if (!with_output && !has_branch_norm) return {};
  Matrix stream;
  if (with_output) {
    INVAR_ASSIGN(stream, ctx.save(layer + 1, Slot::kInput, DType::kF32, tokens, shape.hidden));
  }
  INVAR_ASSIGN(Scratch gated, ctx.scratch("gated", act, tokens, shape.intermediate));
  INVAR_TRY(ctx.run<&Device::swiglu>("gate.forward", gate_args(shape, gate_up, gated.matrix)));
  if (!has_branch_norm) return linear_forward(ctx, weights.down, gated.matrix, stream, &middle);
  INVAR_ASSIGN(const Matrix branch, ctx.save(layer, Slot::kMlpBranch, act, tokens, shape.hidden));
  INVAR_ASSIGN(const Matrix branch_inv_rms, ctx.save(layer, Slot::kMlpBranchInvRms, DType::kF32, tokens, 1));
  INVAR_TRY(linear_forward(ctx, weights.down, gated.matrix, branch));
  if (with_output) {
    return branch_norm_forward(ctx, weights.branch_norm, shape.norm, branch, middle, stream, branch_inv_rms.f32());
  }
  INVAR_ASSIGN(const Scratch unused, ctx.scratch("branch", DType::kF32, tokens, shape.hidden));
  return norm_forward(ctx, weights.branch_norm, shape.norm, branch, unused.matrix, branch_inv_rms.f32());
}

Status mlp_backward(Context& ctx, const MlpShape& shape, const MlpWeights& weights, int64_t layer,
                    const Matrix& residual_gradient, const Matrix& copy) {
  const int64_t tokens = ctx.rows().tokens;
  const DType act = ctx.activations();
  const Matrix gate_up = ctx.saved(layer, Slot::kGateUp);
  {
    Matrix d_branch = copy;
    Scratch before_norm;
    if (weights.branch_norm >= 0) {
      INVAR_ASSIGN(before_norm, ctx.scratch("d_mlp_branch", act, tokens, shape.hidden));
      d_branch = before_norm.matrix;
      INVAR_TRY(branch_norm_backward(ctx, weights.branch_norm, shape.norm, copy, ctx.saved(layer, Slot::kMlpBranch),
                                     ctx.saved(layer, Slot::kMlpBranchInvRms).f32(), d_branch));
      ctx.drop(layer, Slot::kMlpBranch);
      ctx.drop(layer, Slot::kMlpBranchInvRms);
    }
    INVAR_ASSIGN(Scratch gated, ctx.scratch("gated", act, tokens, shape.intermediate));
    {
      INVAR_ASSIGN(Scratch d_gated, ctx.scratch("d_gated", act, tokens, shape.intermediate));
      INVAR_TRY(linear_data_gradient(ctx, weights.down, d_branch, d_gated.matrix));
      invar_swiglu_backward_args args{};
      args.forward = gate_args(shape, gate_up, gated.matrix);
      args.d_out = d_gated.matrix.data;
      args.d_gate = gate_up.data;  // the gradients take the place of gate and up
      args.d_up = gate_up.columns(shape.intermediate, shape.intermediate).data;
      args.act_out = gated.matrix.data;
      INVAR_TRY(ctx.run<&Device::swiglu_backward>("gate.backward", args));
    }
    INVAR_TRY(linear_weight_gradient(ctx, weights.down, d_branch, gated.matrix));
  }
  INVAR_TRY(linear_weight_gradient(ctx, weights.gate_up, gate_up, ctx.saved(layer, Slot::kMlpNorm)));
  ctx.drop(layer, Slot::kMlpNorm);
  INVAR_ASSIGN(Scratch d_normed, ctx.scratch("d_norm", act, tokens, shape.hidden));
  INVAR_TRY(linear_data_gradient(ctx, weights.gate_up, gate_up, d_normed.matrix));
  ctx.drop(layer, Slot::kGateUp);
  INVAR_TRY(norm_backward(ctx, weights.norm, shape.norm, d_normed.matrix, ctx.saved(layer, Slot::kMiddle),
                          ctx.saved(layer, Slot::kMlpInvRms).f32(), residual_gradient, /*accumulate=*/true, copy));
  ctx.drop(layer, Slot::kMlpInvRms);
  ctx.drop(layer, Slot::kMiddle);
  return {};
}

}  // namespace invar
