#include <cmath>

#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/reference/values.h"

namespace invar::cpu::reference {

int32_t rmsnorm(Context& context, const invar_rmsnorm_args& args) {
  const int64_t cols = args.cols;
  parallel_for(context, args.rows, [&](int64_t row, int32_t) {
    // The residual sum is what is stored: it is rounded before it is normalised.
    const void* sum = args.x;
    if (args.add != nullptr) {
      for (int64_t i = row * cols; i < (row + 1) * cols; ++i) {
        store(args.sum_out, args.x_dtype, i, load(args.x, args.x_dtype, i) + load(args.add, args.add_dtype, i));
      }
      sum = args.sum_out;
    }
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const double value = load(sum, args.x_dtype, row * cols + c);
      squares += value * value;
    }
    const double inv_rms = 1 / std::sqrt(squares / static_cast<double>(cols) + args.eps);
    for (int64_t c = 0; c < cols; ++c) {
      const double value = load(sum, args.x_dtype, row * cols + c);
      store(args.y, args.y_dtype, row * cols + c, value * inv_rms * (double{args.gain[c]} + args.gain_offset));
      if (args.add == nullptr && args.sum_out != nullptr) store(args.sum_out, args.x_dtype, row * cols + c, value);
    }
    if (args.inv_rms != nullptr) args.inv_rms[row] = static_cast<float>(inv_rms);
  });
  return kOk;
}

// y = x r w with r = (mean(x^2) + eps)^-1/2, so dx = r (w dy) - x r^3 mean(w dy x).
int32_t rmsnorm_backward(Context& context, const invar_rmsnorm_backward_args& args) {
  const int64_t cols = args.cols;
  parallel_for(context, args.rows, [&](int64_t row, int32_t) {
    const double r = args.inv_rms[row];
    double projection = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const double w = double{args.gain[c]} + args.gain_offset;
      projection += w * load(args.dy, args.dy_dtype, row * cols + c) * load(args.x, args.x_dtype, row * cols + c);
    }
    const double pull = projection * r * r * r / static_cast<double>(cols);
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = row * cols + c;
      const double w = double{args.gain[c]} + args.gain_offset;
      const double dx = r * w * load(args.dy, args.dy_dtype, i) - pull * load(args.x, args.x_dtype, i);
      args.dx[i] = static_cast<float>(args.accumulate_dx != 0 ? args.dx[i] + dx : dx);
      if (args.dx_copy != nullptr) store(args.dx_copy, kBF16, i, args.dx[i]);
    }
  });
  if (args.dgain == nullptr) return kOk;
  parallel_for(context, cols, [&](int64_t c, int32_t) {
    double sum = args.dgain[c];
    for (int64_t row = 0; row < args.rows; ++row) {
      const int64_t i = row * cols + c;
      sum += load(args.dy, args.dy_dtype, i) * load(args.x, args.x_dtype, i) * args.inv_rms[row];
    }
    args.dgain[c] = static_cast<float>(sum);
  });
  return kOk;
}

int32_t rope(Context& context, const invar_rope_args& args) {
  const int64_t half = args.head_dim / 2;
  const double direction = args.inverse != 0 ? -1 : 1;
  parallel_for(context, args.tokens, [&](int64_t t, int32_t) {
    const float* cos = args.cos + args.positions[t] * half;
    const float* sin = args.sin + args.positions[t] * half;
    for (int64_t head = 0; head < args.heads; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        const int64_t at = t * args.ld + head * args.head_dim + i;
        const double first = load(args.x, args.dtype, at), second = load(args.x, args.dtype, at + half);
        const double c = cos[i], s = direction * sin[i];
        store(args.x, args.dtype, at, first * c - second * s);
        store(args.x, args.dtype, at + half, second * c + first * s);
      }
    }
  });
  return kOk;
}

}  // namespace invar::cpu::reference
