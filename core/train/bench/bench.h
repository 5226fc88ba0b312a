// Benchmarks that a user can run: one file each. Every one takes samples of the machine's own limit between its
// repetitions and reports its share of the best of them.
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

// By config.kind.
Result<v1::BenchReport> run_bench(const v1::BenchConfig& config, const BenchEnvironment& environment);

// Optimizer steps of one micro-batch each: one to warm up, then config.repeats (0: 5).
Result<v1::BenchReport> bench_train(const v1::BenchConfig& config, const BenchEnvironment& environment);
// The reference run of config.reference; the curve goes to config.out.
Result<v1::BenchReport> bench_parity(const v1::BenchConfig& config, const BenchEnvironment& environment);
// An FP8 checkpoint, made when none is named, to BF16: plain and durable, each beside the same reads and writes without
// arithmetic.
Result<v1::BenchReport> bench_convert(const v1::BenchConfig& config, const BenchEnvironment& environment);
// The three products of a linear layer with config.rows tokens, config.inner inputs and config.cols outputs.
Result<v1::BenchReport> bench_gemm(const v1::BenchConfig& config, const BenchEnvironment& environment);
// Clip, AdamW and BF16 copy of config.elements in one pass, beside the streaming triad.
Result<v1::BenchReport> bench_adamw(const v1::BenchConfig& config, const BenchEnvironment& environment);
// Causal attention forward and backward.
Result<v1::BenchReport> bench_attention(const v1::BenchConfig& config, const BenchEnvironment& environment);
// A prompt, then greedy tokens one by one, beside the machine's read bandwidth.
Result<v1::BenchReport> bench_generate(const v1::BenchConfig& config, const BenchEnvironment& environment);

}  // namespace invar
