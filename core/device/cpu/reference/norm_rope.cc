#include <cmath>

#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/reference/values.h"

namespace invar::cpu::reference {

namespace {

// Where row `row` begins.
int64_t start(int64_t row, int64_t cols, int64_t groups, int64_t ld) {
  return groups == 0 ? row * cols : row / groups * ld + row % groups * cols;
}

}  // namespace

int32_t rmsnorm(Context& context, const invar_rmsnorm_args& args) {
  const int64_t cols = args.cols;
  parallel_for(context, args.rows, [&](int64_t row, int32_t) {
    const int64_t x = start(row, cols, args.groups, args.ldx), y = start(row, cols, args.groups, args.ldy);
    // The residual sum is what is stored: it is rounded before it is normalised.
    const void* sum = args.x;
    if (args.add != nullptr) {
      for (int64_t i = x; i < x + cols; ++i) {
        store(args.sum_out, args.x_dtype, i, load(args.x, args.x_dtype, i) + load(args.add, args.add_dtype, i));
      }
      sum = args.sum_out;
    }
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const double value = load(sum, args.x_dtype, x + c);
      squares += value * value;
    }
    const double inv_rms = 1 / std::sqrt(squares / static_cast<double>(cols) + args.eps);
    for (int64_t c = 0; c < cols; ++c) {
      const double value = load(sum, args.x_dtype, x + c);
      store(args.y, args.y_dtype, y + c, value * inv_rms * (double{args.gain[c]} + args.gain_offset));
      if (args.add == nullptr && args.sum_out != nullptr) store(args.sum_out, args.x_dtype, x + c, value);
    }
    if (args.inv_rms != nullptr) args.inv_rms[row] = static_cast<float>(inv_rms);
  });
  return kOk;
}

// y = x r w with r = (mean(x^2) + eps)^-1/2, so dx = r (w dy) - x r^3 mean(w dy x).
int32_t rmsnorm_backward(Context& context, const invar_rmsnorm_backward_args& args) {
  const int64_t cols = args.cols;
  const auto x_at = [&](int64_t row, int64_t c) {
    return load(args.x, args.x_dtype, start(row, cols, args.groups, args.ldx) + c);
  };
  const auto dy_at = [&](int64_t row, int64_t c) {
    return load(args.dy, args.dy_dtype, start(row, cols, args.groups, args.lddy) + c);
  };
  parallel_for(context, args.rows, [&](int64_t row, int32_t) {
    const double r = args.inv_rms[row];
    double projection = 0;
    for (int64_t c = 0; c < cols; ++c) {
      projection += (double{args.gain[c]} + args.gain_offset) * dy_at(row, c) * x_at(row, c);
    }
    const double pull = projection * r * r * r / static_cast<double>(cols);
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = start(row, cols, args.groups, args.lddx) + c;
      const double w = double{args.gain[c]} + args.gain_offset;
      double dx = r * w * dy_at(row, c) - pull * x_at(row, c);
      if (args.accumulate_dx != 0) dx += args.dx[i];
      if (args.dx != nullptr) args.dx[i] = static_cast<float>(dx);
      if (args.dx_copy != nullptr) store(args.dx_copy, kBF16, i, static_cast<float>(dx));
    }
  });
  if (args.dgain == nullptr) return kOk;
  parallel_for(context, cols, [&](int64_t c, int32_t) {
    double sum = args.dgain[c];
    for (int64_t row = 0; row < args.rows; ++row) sum += dy_at(row, c) * x_at(row, c) * args.inv_rms[row];
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
