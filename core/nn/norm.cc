#include "core/nn/norm.h"

namespace invar {
namespace {

invar_rmsnorm_args forward_args(Context& ctx, WeightId gain, const NormShape& shape, const Matrix& x, const Matrix& y,
                                float* inv_rms) {
  invar_rmsnorm_args args{};
  args.x_dtype = x.device_dtype();
  args.y_dtype = y.device_dtype();
  args.rows = x.rows;
  args.cols = x.cols;
  args.x = x.data;
  args.gain = ctx.parameters().gain(gain);
  args.gain_offset = shape.gain_offset;
  args.eps = shape.eps;
  args.y = y.data;
  args.inv_rms = inv_rms;
  return args;
}

Result<invar_rmsnorm_backward_args> backward_args(Context& ctx, WeightId gain, const NormShape& shape, const Matrix& dy,
                                                  const Matrix& x, const float* inv_rms) {
  invar_rmsnorm_backward_args args{};
  args.dy_dtype = dy.device_dtype();
  args.x_dtype = x.device_dtype();
  args.rows = x.rows;
  args.cols = x.cols;
  args.dy = dy.data;
  args.x = x.data;
  args.gain = ctx.parameters().gain(gain);
  args.gain_offset = shape.gain_offset;
  args.inv_rms = inv_rms;
  INVAR_ASSIGN(args.dgain, ctx.parameters().gradient_to_add(gain));
  return args;
}

// Where only the activation dtype is wanted.
void write_to(invar_rmsnorm_backward_args& args, const Matrix& dx) {
  if (dx.dtype == DType::kF32) {
    args.dx = dx.f32();
  } else {
    args.dx_copy = dx.data;
  }
}

}  // namespace

Status norm_forward(Context& ctx, WeightId gain, const NormShape& shape, const Matrix& x, const Matrix& y,
                    float* inv_rms) {
  return ctx.run<&Device::rmsnorm>("norm.forward", forward_args(ctx, gain, shape, x, y, inv_rms));
}

Status norm_backward(Context& ctx, WeightId gain, const NormShape& shape, const Matrix& dy, const Matrix& x,
                     const float* inv_rms, const Matrix& residual_gradient, bool accumulate, const Matrix& copy) {
  INVAR_ASSIGN(invar_rmsnorm_backward_args args, backward_args(ctx, gain, shape, dy, x, inv_rms));
  args.accumulate_dx = accumulate;
  args.dx = residual_gradient.f32();
  args.dx_copy = copy.data == residual_gradient.data ? nullptr : copy.data;
  return ctx.run<&Device::rmsnorm_backward>("norm.backward", args);
}

Status branch_norm_forward(Context& ctx, WeightId gain, const NormShape& shape, const Matrix& branch,
                           const Matrix& stream, const Matrix& stream_out, float* inv_rms) {
  INVAR_TRY(norm_forward(ctx, gain, shape, branch, stream_out, inv_rms));
  if (ctx.planning()) return {};
  return ctx.device().add(stream_out.data, stream_out.data, stream.data, DType::kF32, stream.rows * stream.cols);
}

Status branch_norm_backward(Context& ctx, WeightId gain, const NormShape& shape, const Matrix& dy, const Matrix& branch,
                            const float* inv_rms, const Matrix& d_branch) {
  INVAR_ASSIGN(invar_rmsnorm_backward_args args, backward_args(ctx, gain, shape, dy, branch, inv_rms));
  write_to(args, d_branch);
  return ctx.run<&Device::rmsnorm_backward>("norm.backward", args);
}

Status head_norm_forward(Context& ctx, WeightId gain, const NormShape& shape, int64_t heads, const Matrix& x,
                         const Matrix& y, float* inv_rms) {
  invar_rmsnorm_args args = forward_args(ctx, gain, shape, x, y, inv_rms);
  args.rows = x.rows * heads;
  args.cols = x.cols / heads;
  args.groups = heads;
  args.ldx = x.ld;
  args.ldy = y.ld;
  return ctx.run<&Device::rmsnorm>("norm.forward", args);
}

Status head_norm_backward(Context& ctx, WeightId gain, const NormShape& shape, int64_t heads, const Matrix& dy,
                          const Matrix& x, const float* inv_rms, const Matrix& dx) {
  INVAR_ASSIGN(invar_rmsnorm_backward_args args, backward_args(ctx, gain, shape, dy, x, inv_rms));
  args.rows = x.rows * heads;
  args.cols = x.cols / heads;
  args.groups = heads;
  args.ldx = x.ld;
  args.lddy = dy.ld;
  args.lddx = dx.ld;
  write_to(args, dx);
  return ctx.run<&Device::rmsnorm_backward>("norm.backward", args);
}

}  // namespace invar
