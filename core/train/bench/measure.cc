#include "core/train/bench/measure.h"

#include <algorithm>
#include <chrono>

#include "core/numerics/normal.h"

namespace invar {

double bench_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

BenchTimes bench_times(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

std::shared_ptr<ThreadPool> bench_pool(const v1::BenchConfig& config, const BenchEnvironment& environment) {
  if (environment.pool != nullptr && (config.threads() == 0 || config.threads() == environment.pool->threads())) {
    return environment.pool;
  }
  return std::make_shared<ThreadPool>(static_cast<int>(config.threads()));
}

int64_t bench_repeats(const v1::BenchConfig& config, double once, double seconds) {
  if (config.repeats() > 0) return config.repeats();
  return std::clamp<int64_t>(static_cast<int64_t>(seconds / std::max(once, 1e-9)), 3, 2000);
}

Result<DeviceBuffer> bench_values(Device& device, DType dtype, int64_t count, uint64_t stream) {
  INVAR_ASSIGN(auto buffer, device.allocate(static_cast<size_t>(bytes_of(dtype, count))));
  constexpr int64_t kPiece = int64_t{1} << 16;
  std::vector<float> piece(static_cast<size_t>(std::min(kPiece, count)));
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t n = std::min(kPiece, count - first);
    fill_normal(1, stream, static_cast<uint64_t>(first), n, piece.data());
    INVAR_TRY(device.cast(buffer.as<std::byte>() + bytes_of(dtype, first), dtype, piece.data(), DType::kF32, n));
  }
  return buffer;
}

v1::BenchReport bench_report(const v1::BenchConfig& config, const ThreadPool& pool, int64_t repeats,
                             const BenchTimes& times) {
  v1::BenchReport report;
  report.set_kind(config.kind());
  report.set_threads(pool.threads());
  report.set_repeats(repeats);
  report.set_seconds_best(times.best);
  report.set_seconds_median(times.median);
  return report;
}

void add_bench_limit(v1::BenchReport& report, std::string name, double achieved, double limit, std::string unit) {
  v1::LimitShare* line = report.add_limits();
  line->set_name(std::move(name));
  line->set_achieved(achieved);
  line->set_limit(limit);
  line->set_unit(std::move(unit));
  if (limit > 0) line->set_share(achieved / limit);
}

Result<BenchTimes> bench_measure(const BenchEnvironment& environment, int64_t repeats,
                                 const std::function<void()>& between, const std::function<Status()>& once) {
  std::vector<double> seconds;
  for (int64_t i = 0; i < repeats; ++i) {
    INVAR_TRY(check_cancel(environment.cancel));
    between();
    const double start = bench_now();
    INVAR_TRY(once());
    seconds.push_back(bench_now() - start);
    if (environment.on_step) environment.on_step(i + 1, repeats, 0);
  }
  return bench_times(std::move(seconds));
}

}  // namespace invar
