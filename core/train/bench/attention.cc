// Causal attention of BF16 queries, keys and values, as a step runs it.
#include <algorithm>
#include <vector>

#include "core/device/limits.h"
#include "core/train/bench/measure.h"

namespace invar {

Result<v1::BenchReport> bench_attention(const v1::BenchConfig& config, const BenchEnvironment& environment) {
  const int64_t heads = config.heads(), kv_heads = config.kv_heads(), dim = config.head_dim();
  if (heads % kv_heads != 0) {
    return Error(Code::kInvalidArgument, "bench.heads",
                 cat("heads is ", heads, ", kv_heads is ", kv_heads, ": heads must be a multiple"));
  }
  const auto pool = bench_pool(config, environment);
  INVAR_ASSIGN(const auto device, Device::open("cpu", pool));
  const int64_t sequence = config.sequence_length(), sequences = config.micro_batch(), tokens = sequence * sequences;
  const DType dtype = DType::kBF16;
  const int64_t q_size = tokens * heads * dim, kv_size = tokens * kv_heads * dim;
  INVAR_ASSIGN(const auto q, bench_values(*device, dtype, q_size, 0));
  INVAR_ASSIGN(const auto k, bench_values(*device, dtype, kv_size, 1));
  INVAR_ASSIGN(const auto v, bench_values(*device, dtype, kv_size, 2));
  INVAR_ASSIGN(const auto d_out, bench_values(*device, dtype, q_size, 3));
  const auto space = [&](int64_t count) { return device->allocate(static_cast<size_t>(bytes_of(dtype, count))); };
  INVAR_ASSIGN(const auto out, space(q_size));
  INVAR_ASSIGN(const auto d_q, space(q_size));
  INVAR_ASSIGN(const auto d_k, space(kv_size));
  INVAR_ASSIGN(const auto d_v, space(kv_size));
  INVAR_ASSIGN(const auto lse, device->allocate(static_cast<size_t>(heads * tokens) * sizeof(float)));
  std::vector<int32_t> offsets;
  for (int64_t s = 0; s <= sequences; ++s) offsets.push_back(static_cast<int32_t>(s * sequence));

  invar_attention_backward_args args{};
  invar_attention_args& forward = args.forward;
  forward.dtype = static_cast<int32_t>(dtype);
  forward.sequences = sequences, forward.heads = heads, forward.kv_heads = kv_heads, forward.head_dim = dim;
  forward.q_offsets = forward.k_offsets = offsets.data();
  forward.q = q.data(), forward.k = k.data(), forward.v = v.data(), forward.out = out.data();
  forward.ldq = forward.ldo = heads * dim, forward.ldk = forward.ldv = kv_heads * dim;
  forward.lse = lse.as<float>(), forward.scale = 0.125f;
  args.d_out = d_out.data(), args.d_q = d_q.data(), args.d_k = d_k.data(), args.d_v = d_v.data();

  MachineLimits limits(*pool);
  const auto sample = [&] { limits.sample_products(dtype); };
  INVAR_TRY(device->attention(forward));
  const double start = bench_now();
  INVAR_TRY(device->attention_backward(args));
  const int64_t repeats = bench_repeats(config, 2 * (bench_now() - start), 1.0);
  INVAR_ASSIGN(const BenchTimes forward_times,
               bench_measure(environment, repeats, sample, [&] { return device->attention(forward); }));
  INVAR_ASSIGN(const BenchTimes backward_times,
               bench_measure(environment, repeats, sample, [&] { return device->attention_backward(args); }));

  // Two products of each causal pair forward, five backward.
  const double pairs =
      0.5 * static_cast<double>(sequence) * static_cast<double>(sequence + 1) * static_cast<double>(sequences * heads);
  const double forward_flops = 4 * pairs * static_cast<double>(dim), backward_flops = 2.5 * forward_flops;
  const BenchTimes both{forward_times.best + backward_times.best, forward_times.median + backward_times.median};
  v1::BenchReport report = bench_report(config, *pool, repeats, both);
  report.set_sequence_length(sequence);
  report.set_micro_batch(sequences);
  report.set_gflops((forward_flops + backward_flops) / both.best * 1e-9);
  add_bench_limit(report, "forward", forward_flops / forward_times.best * 1e-9, limits.products(), "GFLOP/s");
  add_bench_limit(report, "forward, median", forward_flops / forward_times.median * 1e-9, limits.products(), "GFLOP/s");
  add_bench_limit(report, "backward", backward_flops / backward_times.best * 1e-9, limits.products(), "GFLOP/s");
  add_bench_limit(report, "backward, median", backward_flops / backward_times.median * 1e-9, limits.products(),
                  "GFLOP/s");
  return report;
}

}  // namespace invar
