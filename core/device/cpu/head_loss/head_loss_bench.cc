// Head and loss with gradients beside its three bare products, hidden 576, vocabulary 49152.
//
//   head_loss_bench [TOKENS [THREADS]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/device/cpu/bench/peak.h"
#include "core/device/cpu/head_loss/head_loss.h"
#include "core/device/cpu/level.h"
#include "core/device/cpu/matmul/matmul.h"
#include "core/device/cpu/testing/test_context.h"

namespace invar::cpu {
namespace {

template <typename Call>
double best_of(int runs, const Call& call) {
  double best = 1e9;
  for (int i = 0; i < runs; ++i) {
    const double start = seconds_now();
    call();
    best = std::min(best, seconds_now() - start);
  }
  return best;
}

void run(int32_t dtype, int64_t tokens, int threads, double fma) {
  constexpr int64_t kHidden = 576, kVocab = 49152;
  TestContext context(threads, usable_level());
  const MatmulEngine& engine = engine_for(usable_level(), dtype);
  Stored x(dtype, random_floats(static_cast<size_t>(tokens * kHidden), 1)),
      weight(dtype, random_floats(static_cast<size_t>(kVocab * kHidden), 2, 0.02f)), d_x = x;
  std::vector<float> d_weight(static_cast<size_t>(kVocab * kHidden));
  std::vector<int32_t> targets(static_cast<size_t>(tokens), 17);
  std::vector<char> forward(packed_bytes(engine, dtype, kHidden, kVocab)),
      dgrad(packed_bytes(engine, dtype, kVocab, kHidden));
  pack_with(engine, context.get(), forward.data(), {weight.data(), kHidden, dtype, 1}, kHidden, kVocab);
  pack_with(engine, context.get(), dgrad.data(), {weight.data(), kHidden, dtype, 0}, kVocab, kHidden);
  double loss = 0;
  int64_t count = 0;
  invar_head_loss_args args{};
  args.struct_size = sizeof(args);
  args.dtype = dtype;
  args.tokens = tokens;
  args.hidden = kHidden;
  args.vocab = kVocab;
  args.x = x.data();
  args.weight = weight.data();
  args.packed_weight = forward.data();
  args.packed_weight_dgrad = dgrad.data();
  args.targets = targets.data();
  args.grad_scale = 1;
  args.loss_sum = &loss;
  args.loss_count = &count;
  args.d_x = d_x.data();
  args.d_weight = d_weight.data();
  args.accumulate_d_weight = 1;
  const double whole = best_of(4, [&] { head_loss_with(engine, context.get(), args); });

  Stored logits(dtype, static_cast<size_t>(tokens * kVocab));
  invar_matmul_args product{};
  product.a_dtype = product.b_dtype = product.c_dtype = dtype;
  product.alpha = 1;
  product.rows = tokens;
  product.cols = product.ldc = kVocab;
  product.inner = product.lda = kHidden;
  product.a = x.data();
  product.packed_b = forward.data();
  product.c = logits.data();
  double bare = best_of(4, [&] { matmul_with(engine, context.get(), product); });
  product.cols = product.ldc = kHidden;
  product.inner = product.lda = kVocab;
  product.a = logits.data();
  product.packed_b = dgrad.data();
  product.c = d_x.data();
  bare += best_of(4, [&] { matmul_with(engine, context.get(), product); });
  product = {};
  product.a_dtype = product.b_dtype = dtype;
  product.c_dtype = kF32;
  product.alpha = 1;
  product.transpose_a = product.accumulate = 1;
  product.rows = product.lda = kVocab;
  product.cols = product.ldb = product.ldc = kHidden;
  product.inner = tokens;
  product.a = logits.data();
  product.b = x.data();
  product.c = d_weight.data();
  bare += best_of(4, [&] { matmul_with(engine, context.get(), product); });
  const double flops = 6.0 * static_cast<double>(tokens) * kHidden * kVocab;
  std::printf(
      "%-4s %5ld tokens t%d: %.1f ms, %.1f GFLOP/s, %.0f%% of FMA peak; three bare products %.1f ms, ratio %.2f\n",
      dtype == kF32 ? "f32" : "bf16", static_cast<long>(tokens), threads, whole * 1e3, flops / whole / 1e9,
      100 * flops / whole / 1e9 / (fma * threads), bare * 1e3, whole / bare);
}

int main_of(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::atol(argv[1]) : 512;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const double fma = measure_peak(0.1).fma_f32;
  run(kBF16, tokens, threads, fma);
  run(kF32, tokens, threads, fma);
  return 0;
}

}  // namespace
}  // namespace invar::cpu

int main(int argc, char** argv) { return invar::cpu::main_of(argc, argv); }
