#include "core/device/cpu/testing/peak.h"

#include "core/device/cpu/testing/bench.h"
#include "core/numerics/cpu_features.h"

namespace invar::cpu {

namespace portable {
double run_fmas(int64_t rounds, float* keep);
}
namespace avx2 {
double run_fmas(int64_t rounds, float* keep);
}
namespace avx512 {
double run_fmas(int64_t rounds, float* keep);
}

double fma_peak(TestContext& context) {
  auto* run = portable::run_fmas;
#if defined(__x86_64__)
  if (cpu_level() >= CpuLevel::kAvx2) run = avx2::run_fmas;
  if (cpu_level() >= CpuLevel::kAvx512) run = avx512::run_fmas;
#endif
  const int threads = context.get().threads;
  std::vector<double> operations(static_cast<size_t>(threads));
  std::vector<float> kept(static_cast<size_t>(threads));
  const Timing timing = time_runs(context, 20, [&] {
    context.pool().parallel_for(threads, [&](int64_t item, int) { operations[item] = run(20000, &kept[item]); });
  });
  double total = 0;
  for (double each : operations) total += each;
  return total / timing.best;
}

}  // namespace invar::cpu
