#include <algorithm>
#include <cmath>
#include <limits>

#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/reference/values.h"

namespace invar::cpu::reference {
namespace {

int64_t element_bytes(int32_t dtype) { return dtype == kF32 ? 4 : 2; }

// op(B)[k, c], packed or as the caller stores it.
struct RightOperand {
  double at(int64_t k, int64_t c) const { return load(data, dtype, transposed ? c * ld + k : k * ld + c); }

  const void* data;
  int32_t dtype;
  bool transposed;
  int64_t ld;
};

RightOperand right_operand(const void* b, const void* packed, int32_t dtype, int64_t cols, int64_t ldb,
                           bool transposed) {
  if (packed != nullptr) return {packed, dtype, false, cols};
  return {b, dtype, transposed, ldb};
}

}  // namespace

size_t matmul_packed_bytes(Context&, int32_t dtype, int64_t inner, int64_t cols, int32_t) {
  return static_cast<size_t>(inner * cols * element_bytes(dtype));
}

int32_t matmul_pack(Context& context, void* packed, const void* b, int32_t dtype, int64_t inner, int64_t cols,
                    int64_t ldb, int32_t transpose_b) {
  const RightOperand right = right_operand(b, nullptr, dtype, cols, ldb, transpose_b != 0);
  parallel_for(context, inner, [&](int64_t k, int32_t) {
    for (int64_t c = 0; c < cols; ++c) store(packed, dtype, k * cols + c, right.at(k, c));
  });
  return kOk;
}

int32_t matmul(Context& context, const invar_matmul_args& args) {
  const RightOperand right =
      right_operand(args.b, args.packed_b, args.b_dtype, args.cols, args.ldb, args.transpose_b != 0);
  const int64_t cols = args.cols;
  if (!reserve_worker_scratch(context, kScratchMatmul, cols * sizeof(double)) ||
      !reserve_shared_scratch(context, kScratchMatmul, args.rows * sizeof(double))) {
    return kResourceExhausted;
  }
  double* row_squares = static_cast<double*>(shared_scratch(context, kScratchMatmul));
  parallel_for(context, args.rows, [&](int64_t row, int32_t worker) {
    double* sums = static_cast<double*>(worker_scratch(context, kScratchMatmul, worker));
    std::fill(sums, sums + cols, 0.0);
    for (int64_t k = 0; k < args.inner; ++k) {
      const double a = load(args.a, args.a_dtype, args.transpose_a != 0 ? k * args.lda + row : row * args.lda + k);
      for (int64_t c = 0; c < cols; ++c) sums[c] += a * right.at(k, c);
    }
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) {
      double value = args.alpha * sums[c];
      if (args.accumulate != 0) value += load(args.c, args.c_dtype, row * args.ldc + c);
      if (args.add != nullptr) value += load(args.add, args.add_dtype, row * args.ld_add + c);
      store(args.c, args.c_dtype, row * args.ldc + c, value);
      const double stored = load(args.c, args.c_dtype, row * args.ldc + c);
      squares += stored * stored;
    }
    row_squares[row] = squares;
  });
  if (args.sum_squares != nullptr) {
    double sum = 0;
    for (int64_t row = 0; row < args.rows; ++row) sum += row_squares[row];
    *args.sum_squares = sum;
  }
  return kOk;
}

namespace {

// The head of one call: logits of a token, and with the token's log-sum-exp their gradients.
struct Head {
  explicit Head(const invar_head_loss_args& head_args)
      : args(head_args),
        weight(right_operand(args.weight, args.weight != nullptr ? nullptr : args.packed_weight, args.dtype, args.vocab,
                             args.hidden, true)),
        valid(args.valid_vocab > 0 ? args.valid_vocab : args.vocab) {}

  double logit(int64_t t, int64_t v) const {
    double sum = 0;
    for (int64_t h = 0; h < args.hidden; ++h) sum += load(args.x, args.dtype, t * args.hidden + h) * weight.at(h, v);
    return args.soft_cap > 0 ? args.soft_cap * std::tanh(sum / args.soft_cap) : sum;
  }

  // grad_scale * d loss / d (x.w) of token t at vocabulary entry v.
  double gradient(int64_t t, int64_t v, double logit_value, double lse) const {
    const double probability = std::exp(logit_value - lse) - (v == args.targets[t] ? 1 : 0);
    const double ratio = args.soft_cap > 0 ? logit_value / args.soft_cap : 0;
    return args.grad_scale * probability * (1 - ratio * ratio);
  }

  const invar_head_loss_args& args;
  RightOperand weight;
  int64_t valid;
};

}  // namespace

int32_t head_loss(Context& context, const invar_head_loss_args& args) {
  const Head head(args);
  if (!reserve_shared_scratch(context, kScratchOperation, 2 * args.tokens * sizeof(double)) ||
      !reserve_worker_scratch(context, kScratchOperation, (head.valid + args.hidden) * sizeof(double))) {
    return kResourceExhausted;
  }
  double* lse = static_cast<double*>(shared_scratch(context, kScratchOperation));
  double* losses = lse + args.tokens;
  const bool has_gradients = args.d_x != nullptr;

  parallel_for(context, args.tokens, [&](int64_t t, int32_t worker) {
    double* logits = static_cast<double*>(worker_scratch(context, kScratchOperation, worker));
    double* d_x = logits + head.valid;
    int64_t best = 0;
    for (int64_t v = 0; v < head.valid; ++v) {
      logits[v] = head.logit(t, v);
      if (logits[v] > logits[best]) best = v;
    }
    double sum = 0;
    for (int64_t v = 0; v < head.valid; ++v) sum += std::exp(logits[v] - logits[best]);
    lse[t] = logits[best] + std::log(sum);
    const bool counts = args.targets[t] >= 0;
    losses[t] = counts ? lse[t] - logits[args.targets[t]] : 0;
    if (args.token_loss != nullptr) args.token_loss[t] = static_cast<float>(losses[t]);
    if (args.top1 != nullptr) args.top1[t] = static_cast<int32_t>(best);
    if (!has_gradients) return;
    std::fill(d_x, d_x + args.hidden, 0.0);
    for (int64_t v = 0; counts && v < head.valid; ++v) {
      const double gradient = head.gradient(t, v, logits[v], lse[t]);
      for (int64_t h = 0; h < args.hidden; ++h) d_x[h] += gradient * head.weight.at(h, v);
    }
    for (int64_t h = 0; h < args.hidden; ++h) store(args.d_x, args.dtype, t * args.hidden + h, d_x[h]);
  });

  double loss_sum = 0;
  int64_t loss_count = 0;
  for (int64_t t = 0; t < args.tokens; ++t) {
    loss_sum += losses[t];
    loss_count += args.targets[t] >= 0 ? 1 : 0;
  }
  *args.loss_sum = loss_sum;
  *args.loss_count = loss_count;
  if (!has_gradients || args.d_weight == nullptr) return kOk;

  parallel_for(context, args.vocab, [&](int64_t v, int32_t worker) {
    double* sums = static_cast<double*>(worker_scratch(context, kScratchOperation, worker));
    std::fill(sums, sums + args.hidden, 0.0);
    for (int64_t t = 0; v < head.valid && t < args.tokens; ++t) {
      if (args.targets[t] < 0) continue;
      const double gradient = head.gradient(t, v, head.logit(t, v), lse[t]);
      for (int64_t h = 0; h < args.hidden; ++h) {
        sums[h] += gradient * load(args.x, args.dtype, t * args.hidden + h);
      }
    }
    float* row = args.d_weight + v * args.hidden;
    for (int64_t h = 0; h < args.hidden; ++h) {
      row[h] = static_cast<float>(args.accumulate_d_weight != 0 ? row[h] + sums[h] : sums[h]);
    }
  });
  return kOk;
}

}  // namespace invar::cpu::reference
