#include "core/nn/head.h"

namespace invar {

Status head_loss(Context& ctx, const HeadWeights& weights, const HeadShape& shape, const Matrix& input,
                 const int32_t* targets, const HeadOutputs& outputs, float grad_scale, const Matrix& residual_gradient,
                 const Matrix& copy, HeadResult& result) {
  const bool with_gradients = residual_gradient.data != nullptr;
  INVAR_ASSIGN(Scratch inv_rms, ctx.scratch("final_inv_rms", DType::kF32, input.rows, 1));
  INVAR_ASSIGN(Scratch normed, ctx.scratch("final_norm", ctx.activations(), input.rows, input.cols));
  INVAR_TRY(norm_forward(ctx, weights.norm, shape.norm, input, normed.matrix, inv_rms.matrix.f32()));

  INVAR_ASSIGN(const WeightView forward, ctx.weight(weights.head, WeightUse::kForward));
  invar_head_loss_args args{};
  args.dtype = normed.matrix.device_dtype();
  args.tokens = input.rows;
  args.hidden = input.cols;
  args.vocab = forward.values.rows;
  args.x = normed.matrix.data;
  args.weight = forward.values.data;
  args.packed_weight = forward.packed;
  args.targets = targets;
  args.soft_cap = shape.soft_cap;
  args.grad_scale = grad_scale;
  args.loss_sum = &result.loss_sum;
  args.loss_count = &result.loss_count;
  args.token_loss = outputs.token_loss;
  args.top1 = outputs.top1;
  if (!with_gradients) return ctx.run<&Device::head_loss>("head.loss", args);

  INVAR_ASSIGN(Scratch d_normed, ctx.scratch("d_final_norm", ctx.activations(), input.rows, input.cols));
  INVAR_ASSIGN(const WeightView backward, ctx.weight(weights.head, WeightUse::kDataGradient));
  INVAR_ASSIGN(const GradientTarget target, ctx.parameters().gradient(weights.head));
  args.packed_weight_dgrad = backward.packed;
  args.d_x = d_normed.matrix.data;
  args.d_weight = target.data;
  args.accumulate_d_weight = target.accumulate;
  INVAR_TRY(ctx.run<&Device::head_loss>("head.loss", args));
  return norm_backward(ctx, weights.norm, shape.norm, d_normed.matrix, input, inv_rms.matrix.f32(), residual_gradient,
                       /*accumulate=*/false, copy);
}

Status head_logits(Context& ctx, const HeadWeights& weights, const HeadShape& shape, const Matrix& input,
                   const Matrix& logits) {
  INVAR_ASSIGN(Scratch normed, ctx.scratch("final_norm", ctx.activations(), input.rows, input.cols));
  INVAR_TRY(norm_forward(ctx, weights.norm, shape.norm, input, normed.matrix, nullptr));
  INVAR_ASSIGN(const WeightView head, ctx.weight(weights.head, WeightUse::kForward));
  invar_matmul_args args{};
  args.a_dtype = normed.matrix.device_dtype();
  args.b_dtype = head.values.device_dtype();
  args.c_dtype = logits.device_dtype();
  args.transpose_b = 1;
  args.rows = input.rows;
  args.cols = head.values.rows;
  args.inner = input.cols;
  args.a = normed.matrix.data;
  args.b = head.values.data;
  args.packed_b = head.packed;
  args.c = logits.data;
  args.lda = input.cols;
  args.ldb = head.values.ld;
  args.ldc = logits.ld;
  args.alpha = 1.0f;
  INVAR_TRY(ctx.run<&Device::matmul>("head.logits", args));
  if (shape.soft_cap == 0 || ctx.planning()) return {};
  return ctx.device().soft_cap(logits.f32(), input.rows * logits.cols, shape.soft_cap);
}

}  // namespace invar
