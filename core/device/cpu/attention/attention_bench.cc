// Attention's share of the FP32 multiply-add peak, forward and backward, and of the read bandwidth when decoding.
//   bazel run -c opt //core/device/cpu/attention:attention_bench -- [threads]
// Floating-point operations are the causal half: 2 * 2 * dim a visible pair forward, 5 * 2 * dim backward.
#include "core/device/cpu/attention/attention.h"

#include "core/device/cpu/bench/peak.h"
#include "core/device/cpu/testing/bench.h"
#include "core/numerics/cpu_features.h"

namespace invar::cpu {
namespace {

void bench(TestContext& context, const Kernels& kernels, int32_t dtype, int64_t tokens, int64_t dim, int64_t heads,
           int64_t kv_heads) {
  const int32_t q_offsets[] = {0, static_cast<int32_t>(tokens)};
  Stored q(dtype, random_floats(tokens * heads * dim, 1)), k(dtype, random_floats(tokens * kv_heads * dim, 2));
  Stored v(dtype, random_floats(tokens * kv_heads * dim, 3)), d_out(dtype, random_floats(tokens * heads * dim, 4));
  Stored out(q), d_q(q), d_k(k), d_v(v);
  std::vector<float> lse(heads * tokens);
  invar_attention_backward_args args{};
  args.forward = {sizeof args,
                  dtype,
                  1,
                  heads,
                  kv_heads,
                  dim,
                  q_offsets,
                  q_offsets,
                  q.data(),
                  k.data(),
                  v.data(),
                  out.data(),
                  heads * dim,
                  kv_heads * dim,
                  kv_heads * dim,
                  heads * dim,
                  lse.data(),
                  0.125f,
                  0,
                  0};
  args.d_out = d_out.data(), args.d_q = d_q.data(), args.d_k = d_k.data(), args.d_v = d_v.data();
  const int runs = tokens > 1024 ? 5 : 15;
  kernels.attention(context.get(), args.forward);
  kernels.attention_backward(context.get(), args);
  const Peak peak = measure_peak(0.05);
  const Timing forward = time_runs(context, runs, [&] { kernels.attention(context.get(), args.forward); });
  const Timing backward = time_runs(context, runs, [&] { kernels.attention_backward(context.get(), args); });
  const Peak again = measure_peak(0.05);
  const double limit = 1e9 * context.threads() * std::max(peak.fma_f32, again.fma_f32);
  const double pair_limit = 1e9 * context.threads() * std::max(peak.dot_bf16, again.dot_bf16);
  const double pairs = 0.5 * static_cast<double>(tokens) * static_cast<double>(tokens + 1) * static_cast<double>(heads);
  const double forward_flop = 4 * pairs * static_cast<double>(dim), backward_flop = 2.5 * forward_flop;
  const double share = 100 / limit;
  std::printf(
      "%s tokens %5ld dim %3ld heads %ld/%ld: forward %7.2f ms %5.0f GFLOP/s %3.0f%%  backward %7.2f ms %5.0f "
      "GFLOP/s %3.0f%%  together %3.0f%% of the FMA peak %.0f (median %3.0f%%), %3.0f%% of the vdpbf16ps peak\n",
      dtype == kF32 ? "f32 " : "bf16", long(tokens), long(dim), long(heads), long(kv_heads), forward.best * 1e3,
      forward_flop / forward.best / 1e9, forward_flop / forward.best * share, backward.best * 1e3,
      backward_flop / backward.best / 1e9, backward_flop / backward.best * share,
      (forward_flop + backward_flop) / (forward.best + backward.best) * share, limit / 1e9,
      (forward_flop + backward_flop) / (forward.median + backward.median) * share,
      pair_limit > 0 ? 100 * (forward_flop + backward_flop) / (forward.best + backward.best) / pair_limit : 0);
}

void bench_decode(TestContext& context, const Kernels& kernels, int64_t sequences, int64_t cache, int64_t heads,
                  int64_t kv_heads) {
  const int64_t dim = 64;
  std::vector<int32_t> q_offsets, k_offsets;
  for (int64_t s = 0; s <= sequences; ++s) {
    q_offsets.push_back(static_cast<int32_t>(s));
    k_offsets.push_back(static_cast<int32_t>(s * cache));
  }
  const int64_t keys = cache * sequences;
  std::vector<uint16_t> q(sequences * heads * dim, 0x3f00), out(q), k(keys * kv_heads * dim, 0x3f00), v(k);
  invar_attention_args args{};
  args.dtype = kBF16, args.sequences = sequences, args.heads = heads, args.kv_heads = kv_heads, args.head_dim = dim;
  args.q_offsets = q_offsets.data(), args.k_offsets = k_offsets.data();
  args.q = q.data(), args.k = k.data(), args.v = v.data(), args.out = out.data(), args.scale = 0.125f;
  args.ldq = args.ldo = heads * dim, args.ldk = args.ldv = kv_heads * dim;
  Triad triad(1 << 25);
  const double limit = triad.bandwidth(context, 5);
  kernels.attention(context.get(), args);
  const Timing timing = time_runs(context, sequences > 1 ? 5 : 200, [&] { kernels.attention(context.get(), args); });
  const double bytes = 4.0 * static_cast<double>(keys * kv_heads * dim);
  std::printf("bf16 decode, %ld sequences of %ld keys, heads %ld/%ld: %.3f ms, %.1f GB/s, %.0f%% of triad\n",
              long(sequences), long(cache), long(heads), long(kv_heads), timing.best * 1e3, bytes / timing.best / 1e9,
              100 * bytes / timing.best / limit);
}

}  // namespace
}  // namespace invar::cpu

int main(int argc, char** argv) {
  using namespace invar::cpu;  // NOLINT: a program's main
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  TestContext context(threads > 0 ? threads : 1);
  Kernels kernels{};
  fill_attention(kernels, static_cast<Level>(invar::cpu_level()));
  bench(context, kernels, kBF16, 512, 64, 9, 3);
  bench(context, kernels, kBF16, 2048, 64, 9, 3);
  bench(context, kernels, kBF16, 512, 128, 4, 4);
  bench(context, kernels, kF32, 512, 64, 9, 3);
  bench_decode(context, kernels, 32, 2048, 9, 3);
  bench_decode(context, kernels, 1, 1024, 9, 3);  // in cache: what arithmetic costs
}
