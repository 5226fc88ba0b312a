#include <cmath>

#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/reference/values.h"

namespace invar::cpu::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// By halves down to 64 elements: the error grows with log2(count).
double pairwise_sum_squares(const float* x, int64_t count) {
  if (count > 64) {
    const int64_t half = count / 2;
    return pairwise_sum_squares(x, half) + pairwise_sum_squares(x + half, count - half);
  }
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{x[i]} * double{x[i]};
  return sum;
}

}  // namespace

int32_t cast(Context&, void* to, int32_t to_dtype, const void* from, int32_t from_dtype, int64_t count) {
  for (int64_t i = 0; i < count; ++i) store(to, to_dtype, i, load(from, from_dtype, i));
  return kOk;
}

int32_t add(Context&, void* out, const void* a, const void* b, int32_t dtype, int64_t count) {
  for (int64_t i = 0; i < count; ++i) store(out, dtype, i, load(a, dtype, i) + load(b, dtype, i));
  return kOk;
}

int32_t sum_squares(Context&, const float* x, int64_t count, double* sum) {
  *sum = pairwise_sum_squares(x, count);
  return kOk;
}

int32_t soft_cap(Context&, float* x, int64_t count, float cap) {
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(cap * std::tanh(double{x[i]} / cap));
  return kOk;
}

int32_t all_finite(Context&, const float* x, int64_t count, int32_t* finite) {
  int32_t all = 1;
  for (int64_t i = 0; i < count; ++i) all &= std::isfinite(x[i]) ? 1 : 0;
  *finite = all;
  return kOk;
}

namespace {

struct Gate {
  double value, slope;
};

// GELU by tanh is g * sigmoid(2 u) with u = sqrt(2 / pi) (g + 0.044715 g^3).
Gate gate_of(double g, int32_t function) {
  if (function == INVAR_GATE_SILU) {
    const double s = sigmoid(g);
    return {g * s, s * (1 + g * (1 - s))};
  }
  constexpr double kRoot = 0.79788456080286535588, kCubic = 0.044715;
  const double s = sigmoid(2 * kRoot * (g + kCubic * g * g * g));
  return {g * s, s + g * s * (1 - s) * 2 * kRoot * (1 + 3 * kCubic * g * g)};
}

}  // namespace

int32_t swiglu(Context& context, const invar_swiglu_args& args) {
  parallel_for(context, args.rows, [&](int64_t row, int32_t) {
    for (int64_t c = 0; c < args.cols; ++c) {
      const double gate = load(args.gate, args.dtype, row * args.ld_in + c);
      const double up = load(args.up, args.dtype, row * args.ld_in + c);
      store(args.out, args.dtype, row * args.ld_out + c, gate_of(gate, args.function).value * up);
    }
  });
  return kOk;
}

int32_t swiglu_backward(Context& context, const invar_swiglu_backward_args& args) {
  const invar_swiglu_args& forward = args.forward;
  const int32_t dtype = forward.dtype;
  parallel_for(context, forward.rows, [&](int64_t row, int32_t) {
    for (int64_t c = 0; c < forward.cols; ++c) {
      const int64_t in = row * forward.ld_in + c, out = row * forward.ld_out + c;
      const double up = load(forward.up, dtype, in), d_out = load(args.d_out, dtype, out);
      const Gate gate = gate_of(load(forward.gate, dtype, in), forward.function);
      store(args.d_gate, dtype, in, d_out * up * gate.slope);
      store(args.d_up, dtype, in, d_out * gate.value);
      if (args.act_out != nullptr) store(args.act_out, dtype, out, gate.value * up);
    }
  });
  return kOk;
}

int32_t embedding(Context& context, const invar_embedding_args& args) {
  parallel_for(context, args.tokens, [&](int64_t t, int32_t) {
    for (int64_t c = 0; c < args.cols; ++c) {
      const double value = load(args.table, args.table_dtype, args.ids[t] * args.cols + c);
      store(args.out, args.out_dtype, t * args.cols + c, args.scale * value);
    }
  });
  return kOk;
}

int32_t embedding_backward(Context& context, const invar_embedding_args& args) {
  parallel_for(context, args.cols, [&](int64_t c, int32_t) {
    for (int64_t t = 0; t < args.tokens; ++t) {
      float& sum = args.d_table[args.ids[t] * args.cols + c];
      sum = static_cast<float>(sum + args.scale * load(args.out, args.out_dtype, t * args.cols + c));
    }
  });
  return kOk;
}

int32_t adamw(Context& context, const invar_adamw_args& args) {
  const double lr = args.lr, beta1 = args.beta1, beta2 = args.beta2;
  parallel_for(context, args.tensor_count, [&](int64_t index, int32_t) {
    const invar_adamw_tensor& tensor = args.tensors[index];
    for (int64_t i = 0; i < tensor.count; ++i) {
      const double g = double{tensor.gradient[i]} * args.grad_scale;
      const double m = beta1 * tensor.m[i] + (1 - beta1) * g;
      const double v = beta2 * tensor.v[i] + (1 - beta2) * g * g;
      const double decayed = tensor.master[i] - lr * tensor.weight_decay * tensor.master[i];
      const double master = decayed - lr * (m / args.bias1) / (std::sqrt(v / args.bias2) + args.eps);
      tensor.m[i] = static_cast<float>(m);
      tensor.v[i] = static_cast<float>(v);
      tensor.master[i] = static_cast<float>(master);
      // The copy of what is stored, so that a resumed run, which has only the master, makes the same one.
      if (tensor.working != nullptr) store(tensor.working, kBF16, i, tensor.master[i]);
    }
  });
  return kOk;
}

}  // namespace invar::cpu::reference
