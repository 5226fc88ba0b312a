// The recorded reference run, trained again.
#include "core/train/parity.h"

#include "core/train/bench/measure.h"

namespace invar {

Result<v1::BenchReport> bench_parity(const v1::BenchConfig& config, const BenchEnvironment& environment) {
  if (config.reference().empty()) {
    return Error(Code::kInvalidArgument, "config.missing_field",
                 "reference: the folder of the reference run is not named");
  }
  const auto pool = bench_pool(config, environment);
  const ParityOptions options{
      .reference = config.reference(), .recipe = static_cast<Recipe>(config.recipe()), .steps = config.steps()};
  const auto on_step = [&](int64_t step, double loss) {
    if (environment.on_step) environment.on_step(step, config.steps(), loss);
  };
  INVAR_ASSIGN(const ParityCurve curve, run_parity(options, pool, *environment.files, on_step, environment.cancel));
  v1::BenchReport report;
  if (!config.out().empty()) {
    INVAR_TRY(write_text_atomically(*environment.files, config.out(), curve.json));
    report.set_out(config.out());
  }
  report.set_kind(v1::BENCH_KIND_PARITY);
  report.set_recipe(config.recipe());
  report.set_threads(pool->threads());
  report.set_steps(static_cast<int64_t>(curve.loss.size()));
  report.set_first_loss(curve.loss.front());
  report.set_last_loss(curve.loss.back());
  report.set_eval_loss(curve.eval_loss);
  report.set_tokens_per_second(static_cast<double>(curve.tokens) / curve.seconds);
  return report;
}

}  // namespace invar
