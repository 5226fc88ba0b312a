#include "core/train/bench/bench.h"

namespace invar {

Result<v1::BenchReport> run_bench(const v1::BenchConfig& config, const BenchEnvironment& environment) {
  switch (config.kind()) {
    case v1::BENCH_KIND_TRAIN: return bench_train(config, environment);
    case v1::BENCH_KIND_PARITY: return bench_parity(config, environment);
    case v1::BENCH_KIND_CONVERT: return bench_convert(config, environment);
    case v1::BENCH_KIND_GEMM: return bench_gemm(config, environment);
    case v1::BENCH_KIND_ADAMW: return bench_adamw(config, environment);
    case v1::BENCH_KIND_ATTENTION: return bench_attention(config, environment);
    case v1::BENCH_KIND_GENERATE: return bench_generate(config, environment);
    default: break;
  }
  return Error(Code::kInvalidArgument, "config.missing_field", "kind: the benchmark is not named");
}

}  // namespace invar
