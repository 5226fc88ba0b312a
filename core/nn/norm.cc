#include "core/nn/norm.h"

namespace invar {

Status norm_forward(Context& ctx, WeightId gain, float eps, const Matrix& x, const Matrix& y, float* inv_rms) {
  invar_rmsnorm_args args{};
  args.x_dtype = x.device_dtype();
  args.y_dtype = y.device_dtype();
  args.rows = x.rows;
  args.cols = x.cols;
  args.x = x.data;
  args.gain = ctx.parameters().gain(gain);
  args.eps = eps;
  args.y = y.data;
  args.inv_rms = inv_rms;
  return ctx.run<&Device::rmsnorm>("norm.forward", args);
}

Status norm_backward(Context& ctx, WeightId gain, const Matrix& dy, const Matrix& x, const float* inv_rms,
                     const Matrix& residual_gradient, bool accumulate, const Matrix& copy) {
  invar_rmsnorm_backward_args args{};
  args.dy_dtype = dy.device_dtype();
  args.x_dtype = x.device_dtype();
  args.accumulate_dx = accumulate;
  args.rows = x.rows;
  args.cols = x.cols;
  args.dy = dy.data;
  args.x = x.data;
  args.gain = ctx.parameters().gain(gain);
  args.inv_rms = inv_rms;
  args.dx = residual_gradient.f32();
  args.dx_copy = copy.data == residual_gradient.data ? nullptr : copy.data;
  INVAR_ASSIGN(args.dgain, ctx.parameters().gradient_to_add(gain));
  return ctx.run<&Device::rmsnorm_backward>("norm.backward", args);
}

}  // namespace invar
