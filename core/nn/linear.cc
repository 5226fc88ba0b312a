#include "core/nn/linear.h"

#include "core/nn/operand.h"

namespace invar {
namespace {

invar_matmul_args product(const Matrix& a, const Matrix& c, int64_t inner) {
  invar_matmul_args args{};
  args.a_dtype = a.device_dtype();
  args.c_dtype = c.device_dtype();
  args.rows = c.rows;
  args.cols = c.cols;
  args.inner = inner;
  args.a = a.data;
  args.lda = a.ld;
  args.c = c.data;
  args.ldc = c.ld;
  return args;
}

void multiply_by(invar_matmul_args& args, const WeightView& weight, bool transpose) {
  args.b_dtype = weight.values.device_dtype();
  args.b = weight.values.data;
  args.ldb = weight.values.ld;
  args.packed_b = weight.packed;
  args.transpose_b = transpose;
}

}  // namespace

Status linear_forward(Context& ctx, WeightId id, const Matrix& x, const Matrix& y, const Matrix* add) {
  INVAR_ASSIGN(const Operand a, make_operand(ctx, x, ctx.parameters().policy(id).forward_input));
  INVAR_ASSIGN(const WeightView weight, ctx.weight(id, WeightUse::kForward));
  invar_matmul_args args = product(a.matrix, y, x.cols);
  multiply_by(args, weight, /*transpose=*/true);
  args.alpha = a.scale_inv * weight.scale_inv;
  if (add != nullptr) {
    args.add = add->data;
    args.add_dtype = add->device_dtype();
    args.ld_add = add->ld;
  }
  return ctx.run<&Device::matmul>("linear.forward", args);
}

Status linear_data_gradient(Context& ctx, WeightId id, const Matrix& dy, const Matrix& dx) {
  INVAR_ASSIGN(const Operand a, make_operand(ctx, dy, ctx.parameters().policy(id).data_gradient_gradient));
  INVAR_ASSIGN(const WeightView weight, ctx.weight(id, WeightUse::kDataGradient));
  invar_matmul_args args = product(a.matrix, dx, dy.cols);
  multiply_by(args, weight, /*transpose=*/false);
  args.alpha = a.scale_inv * weight.scale_inv;
  return ctx.run<&Device::matmul>("linear.data_gradient", args);
}

Status linear_weight_gradient(Context& ctx, WeightId id, const Matrix& dy, const Matrix& x) {
  const LinearPolicy& policy = ctx.parameters().policy(id);
  INVAR_ASSIGN(const Operand a, make_operand(ctx, dy, policy.weight_gradient_gradient));
  INVAR_ASSIGN(const Operand b, make_operand(ctx, x, policy.weight_gradient_input));
  INVAR_ASSIGN(const GradientTarget target, ctx.parameters().gradient(id));
  const Matrix gradient{target.data, DType::kF32, dy.cols, x.cols, x.cols};
  invar_matmul_args args = product(a.matrix, gradient, dy.rows);
  args.transpose_a = 1;
  args.b_dtype = b.matrix.device_dtype();
  args.b = b.matrix.data;
  args.ldb = b.matrix.ld;
  args.accumulate = target.accumulate;
  args.alpha = a.scale_inv * b.scale_inv;
  args.sum_squares = target.sum_squares;
  return ctx.run<&Device::matmul>("linear.weight_gradient", args);
}

Matrix bias_rows(Context& ctx, WeightId bias, int64_t rows, int64_t cols) {
  return {const_cast<float*>(ctx.parameters().gain(bias)), DType::kF32, rows, cols, 0};
}

Status bias_gradient(Context& ctx, WeightId bias, const Matrix& dy) {
  INVAR_ASSIGN(const GradientTarget target, ctx.parameters().gradient(bias));
  const Matrix gradient{target.data, DType::kF32, 1, dy.cols, dy.cols};
  invar_matmul_args args = product(ctx.ones(dy.rows), gradient, dy.rows);
  args.b_dtype = dy.device_dtype();
  args.b = dy.data;
  args.ldb = dy.ld;
  args.accumulate = target.accumulate;
  args.alpha = 1.0f;
  args.sum_squares = target.sum_squares;
  return ctx.run<&Device::matmul>("linear.bias_gradient", args);
}

}  // namespace invar
