// Clip factor, AdamW, master and BF16 copy in one pass: 16 bytes read and 14 written an element.
#include <algorithm>
#include <vector>

#include "core/device/limits.h"
#include "core/train/bench/measure.h"

namespace invar {

Result<v1::BenchReport> bench_adamw(const v1::BenchConfig& config, const BenchEnvironment& environment) {
  constexpr int64_t kTensors = 272, kAlign = 16;
  constexpr double kBytes = 30;
  const auto pool = bench_pool(config, environment);
  INVAR_ASSIGN(const auto device, Device::open("cpu", pool));
  MachineLimits limits(*pool);
  INVAR_TRY(limits.use_memory(*device));

  const int64_t elements = config.elements();
  // Zeroed memory is a fair state: every value stays finite, and speed does not depend on values that are normal.
  const auto array = [&](DType dtype, float value) -> Result<DeviceBuffer> {
    INVAR_ASSIGN(auto buffer, device->allocate(static_cast<size_t>(bytes_of(dtype, elements))));
    if (dtype == DType::kF32) {
      pool->parallel_for((elements + 65535) / 65536, [&](int64_t piece, int) {
        float* first = buffer.as<float>() + piece * 65536;
        std::fill(first, first + std::min<int64_t>(65536, elements - piece * 65536), value);
      });
    }
    return buffer;
  };
  INVAR_ASSIGN(const auto master, array(DType::kF32, 0.5f));
  INVAR_ASSIGN(const auto gradient, array(DType::kF32, 0.01f));
  INVAR_ASSIGN(const auto m, array(DType::kF32, 0.001f));
  INVAR_ASSIGN(const auto v, array(DType::kF32, 1e-4f));
  INVAR_ASSIGN(const auto working, array(DType::kBF16, 0));
  std::vector<invar_adamw_tensor> tensors;
  const int64_t each = std::max(kAlign, (elements / kTensors + kAlign - 1) / kAlign * kAlign);
  for (int64_t first = 0; first < elements; first += each) {
    tensors.push_back({.master = master.as<float>() + first,
                       .gradient = gradient.as<float>() + first,
                       .m = m.as<float>() + first,
                       .v = v.as<float>() + first,
                       .working = working.as<uint16_t>() + first,
                       .count = std::min(each, elements - first),
                       .weight_decay = 0.1f});
  }
  invar_adamw_args args{};
  args.tensors = tensors.data();
  args.tensor_count = static_cast<int64_t>(tensors.size());
  args.lr = 1e-4f, args.beta1 = 0.9f, args.beta2 = 0.95f, args.eps = 1e-8f;
  args.bias1 = args.bias2 = 0.5;
  args.grad_scale = 0.25f;

  INVAR_TRY(device->adamw(args));
  const double start = bench_now();
  INVAR_TRY(device->adamw(args));
  const int64_t repeats = bench_repeats(config, 2 * (bench_now() - start), 1.5);
  INVAR_ASSIGN(const BenchTimes times,
               bench_measure(
                   environment, repeats, [&] { limits.sample_triad(); }, [&] { return device->adamw(args); }));
  v1::BenchReport report = bench_report(config, *pool, repeats, times);
  report.set_parameters(elements);
  const double bytes = kBytes * static_cast<double>(elements) * 1e-9;
  report.set_gbytes_per_second(bytes / times.best);
  add_bench_limit(report, "clip, adamw and bf16 copy", bytes / times.best, limits.triad(), "GB/s");
  add_bench_limit(report, "median", bytes / times.median, limits.triad(), "GB/s");
  report.add_notes("limit: streaming triad, the best of one sample before each repetition");
  return report;
}

}  // namespace invar
