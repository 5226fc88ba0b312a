#include "core/device/cpu/head_loss/head_loss.h"

#include <cmath>
#include <cstring>

#include "core/device/cpu/head_loss/softmax_row.h"
#include "core/device/cpu/matmul/matmul.h"

namespace invar::cpu {
namespace {

constexpr int64_t kChunkBytes = int64_t{100} << 20;
constexpr int64_t kFewestTokens = 64, kMostTokens = 2048;

int64_t bytes_of_element(int32_t dtype) { return dtype == kF32 ? 4 : 2; }

// Rows of logits lie an odd number of cache lines apart: reading down a column spreads over the cache's sets.
int64_t row_floats(int64_t vocab) { return ((vocab + 15) / 16 | 1) * 16; }

// The tokens [first, first + tokens) of a call, with their logits in `logits`.
struct Chunk {
  const MatmulEngine& engine;
  Context& context;
  const invar_head_loss_args& args;
  const SoftmaxRow& softmax;
  int64_t first, tokens;
  float* logits;
  double* losses;  // [tokens]

  const void* x() const {
    return static_cast<const char*>(args.x) + first * args.hidden * bytes_of_element(args.dtype);
  }

  int32_t make_logits() const {
    invar_matmul_args product{};
    product.a_dtype = product.b_dtype = args.dtype;
    product.c_dtype = kF32;
    product.rows = tokens;
    product.cols = args.vocab;
    product.inner = product.lda = product.ldb = args.hidden;
    product.transpose_b = 1;
    product.a = x();
    product.b = args.weight;
    product.packed_b = args.packed_weight;
    product.c = logits;
    product.ldc = row_floats(args.vocab);
    product.alpha = 1;
    return matmul_with(engine, context, product);
  }

  void finish_row(int64_t row) const {
    float* values = logits + row * row_floats(args.vocab);
    const int64_t count = args.valid_vocab != 0 ? args.valid_vocab : args.vocab;
    const int32_t target = args.targets[first + row];
    const bool counts = target >= 0;
    losses[row] = 0;
    if (counts || args.top1 != nullptr) {
      const float largest = softmax.cap_and_max(values, count, args.soft_cap);
      if (args.top1 != nullptr) args.top1[first + row] = static_cast<int32_t>(softmax.find(values, count, largest));
      if (counts) {
        const double sum = softmax.sum_exp(values, count, largest);
        losses[row] = static_cast<double>(largest) - values[target] + std::log(sum);
        if (args.d_x != nullptr) {
          softmax.gradient(values, count, args.vocab, largest, static_cast<float>(args.grad_scale / sum), target,
                           args.grad_scale, args.soft_cap, args.dtype);
        }
      }
    }
    if (!counts && args.d_x != nullptr) {
      std::memset(values, 0, static_cast<size_t>(args.vocab * bytes_of_element(args.dtype)));
    }
    if (args.token_loss != nullptr) args.token_loss[first + row] = static_cast<float>(losses[row]);
  }

  // The gradients lie where the logits were, in the operands' dtype.
  int64_t gradient_ld() const { return row_floats(args.vocab) * 4 / bytes_of_element(args.dtype); }

  int32_t make_d_x() const {
    invar_matmul_args product{};
    product.a_dtype = product.b_dtype = product.c_dtype = args.dtype;
    product.rows = tokens;
    product.cols = product.ldb = product.ldc = args.hidden;
    product.inner = args.vocab;
    product.a = logits;
    product.lda = gradient_ld();
    product.b = args.weight;
    product.packed_b = args.packed_weight_dgrad;
    product.c = static_cast<char*>(args.d_x) + first * args.hidden * bytes_of_element(args.dtype);
    product.alpha = 1;
    return matmul_with(engine, context, product);
  }

  int32_t make_d_weight() const {
    invar_matmul_args product{};
    product.a_dtype = product.b_dtype = args.dtype;
    product.c_dtype = kF32;
    product.transpose_a = 1;
    product.accumulate = first != 0 || args.accumulate_d_weight != 0;
    product.rows = args.vocab;
    product.cols = product.ldb = product.ldc = args.hidden;
    product.inner = tokens;
    product.a = logits;
    product.lda = gradient_ld();
    product.b = x();
    product.c = args.d_weight;
    product.alpha = 1;
    return matmul_with(engine, context, product);
  }
};

int32_t kernel_head_loss(Context& context, const invar_head_loss_args& args) {
  return head_loss_with(engine_for(context.level, args.dtype), context, args);
}

}  // namespace

int64_t head_loss_chunk(int64_t vocab) {
  const int64_t tokens = kChunkBytes / (row_floats(vocab) * 4);
  return tokens < kFewestTokens ? kFewestTokens : tokens > kMostTokens ? kMostTokens : tokens;
}

int32_t head_loss_with(const MatmulEngine& engine, Context& context, const invar_head_loss_args& args) {
  const int64_t chunks = (args.tokens + head_loss_chunk(args.vocab) - 1) / head_loss_chunk(args.vocab);
  const int64_t largest_chunk = chunks == 0 ? 0 : (args.tokens + chunks - 1) / chunks;
  // Losses first, padded so that the logits start on a cache line.
  const int64_t loss_doubles = (largest_chunk + 7) / 8 * 8;
  const auto bytes = static_cast<size_t>(loss_doubles * 8 + largest_chunk * row_floats(args.vocab) * 4);
  if (!reserve_shared_scratch(context, kScratchOperation, bytes)) return kResourceExhausted;
  double* losses = static_cast<double*>(shared_scratch(context, kScratchOperation));
  float* logits = reinterpret_cast<float*>(losses + loss_doubles);
  const SoftmaxRow softmax = softmax_row(context.level);

  double loss_sum = 0;
  int64_t loss_count = 0;
  for (int64_t first = 0; first < args.tokens; first += largest_chunk) {
    const int64_t tokens = args.tokens - first < largest_chunk ? args.tokens - first : largest_chunk;
    const Chunk chunk = {engine, context, args, softmax, first, tokens, logits, losses};
    if (const int32_t code = chunk.make_logits(); code != kOk) return code;
    parallel_for(context, tokens, [&](int64_t row, int32_t) { chunk.finish_row(row); });
    for (int64_t row = 0; row < tokens; ++row) {
      loss_sum += losses[row];
      loss_count += args.targets[first + row] >= 0 ? 1 : 0;
    }
    if (args.d_x == nullptr) continue;
    if (const int32_t code = chunk.make_d_x(); code != kOk) return code;
    if (const int32_t code = chunk.make_d_weight(); code != kOk) return code;
  }
  if (args.tokens == 0 && args.d_weight != nullptr && args.accumulate_d_weight == 0) {
    std::memset(args.d_weight, 0, static_cast<size_t>(args.vocab * args.hidden) * sizeof(float));
  }
  *args.loss_sum = loss_sum;
  *args.loss_count = loss_count;
  return kOk;
}

void fill_head_loss(Kernels& kernels) { kernels.head_loss = kernel_head_loss; }

}  // namespace invar::cpu
