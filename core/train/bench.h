// Benchmarks of training that a user can run: steps of a known shape on random tokens, and the recorded parity run.
// Configs are resolved: every default is filled in. Thread rule: functions; the cancel flag may be set from anywhere.
#pragma once

#include <functional>
#include <memory>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"
#include "core/family/family.h"
#include "proto/invar/v1/bench.pb.h"

namespace invar {

struct BenchEnvironment {
  std::shared_ptr<ThreadPool> pool;  // null: one of config.threads
  FileSystem* files = nullptr;
  const CancelFlag* cancel = nullptr;
  std::function<void(int64_t done, int64_t total, double loss)> on_step;  // may be empty
};

// "tiny" or "smollm2-135m"; "bench.unknown_shape" lists them.
Result<ModelShape> bench_shape(std::string_view name);

// Optimizer steps of one micro-batch each: one to warm up, then config.repeats (0: 5).
Result<v1::BenchReport> bench_train(const v1::BenchConfig& config, const BenchEnvironment& environment);
// The reference run of config.reference; the curve goes to config.out.
Result<v1::BenchReport> bench_parity(const v1::BenchConfig& config, const BenchEnvironment& environment);

}  // namespace invar
