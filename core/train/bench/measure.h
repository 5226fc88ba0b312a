// What the benchmarks share: repetitions and their best and median, random operands, lines of the report.
// Thread rule: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/train/bench/bench.h"

namespace invar {

double bench_now();  // seconds of a steady clock

struct BenchTimes {
  double best = 0, median = 0;  // seconds
};
BenchTimes bench_times(std::vector<double> seconds);

// The environment's pool when it has the threads that the config asks for, else one of its own.
std::shared_ptr<ThreadPool> bench_pool(const v1::BenchConfig& config, const BenchEnvironment& environment);

// config.repeats, or what fits into about `seconds` after a first run of `once`: 3 to 2000.
int64_t bench_repeats(const v1::BenchConfig& config, double once, double seconds);

// `count` values of N(0, 1) in dtype F32 or BF16.
Result<DeviceBuffer> bench_values(Device& device, DType dtype, int64_t count, uint64_t stream);

// A report of config.kind with threads, repetitions and times.
v1::BenchReport bench_report(const v1::BenchConfig& config, const ThreadPool& pool, int64_t repeats,
                             const BenchTimes& times);
void add_bench_limit(v1::BenchReport& report, std::string name, double achieved, double limit, std::string unit);

// Runs `once` `repeats` times with `between` before each; the seconds of `once`. Stops when cancelled.
Result<BenchTimes> bench_measure(const BenchEnvironment& environment, int64_t repeats,
                                 const std::function<void()>& between, const std::function<Status()>& once);

}  // namespace invar
