#include "core/train/bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "core/base/rng.h"
#include "core/train/learner.h"
#include "core/train/parity.h"

namespace invar {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Resident memory of the process; 0 where the system does not say.
int64_t resident_bytes(FileSystem& files) {
  const auto file = files.open("/proc/self/statm");
  if (!file.ok()) return 0;
  char text[128] = {};
  // The file's size reads as 0, so its content is asked for as far as a short line goes.
  for (size_t length = 0; length + 1 < sizeof(text); ++length) {
    const Status status =
        (*file)->read_at(static_cast<int64_t>(length), std::as_writable_bytes(std::span(text + length, 1)));
    if (!status.ok()) break;
  }
  long long total = 0, resident = 0;
  if (std::sscanf(text, "%lld %lld", &total, &resident) != 2) return 0;
  return resident * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

std::shared_ptr<ThreadPool> pool_of(const v1::BenchConfig& config, const BenchEnvironment& environment) {
  if (environment.pool != nullptr && (config.threads() == 0 || config.threads() == environment.pool->threads())) {
    return environment.pool;
  }
  return std::make_shared<ThreadPool>(static_cast<int>(config.threads()));
}

// Model FLOPs of forward and backward of one token: 6 for each weight that is in a product, and causal attention.
double flops_per_token(const ModelShape& shape, int64_t sequence) {
  const double head = static_cast<double>(shape.vocab * shape.hidden);
  const double embedding = shape.tie_embeddings ? 0 : head;
  const double weights = static_cast<double>(parameter_count(shape)) - embedding;
  return 6 * weights + 6.0 * static_cast<double>(shape.layers * shape.query_size() * sequence);
}

}  // namespace

Result<ModelShape> bench_shape(std::string_view name) {
  ModelShape shape;
  shape.head_dim = 64;
  shape.norm_eps = 1e-5;
  shape.tie_embeddings = true;
  shape.max_positions = 8192;
  if (name == "smollm2-135m") {
    shape.vocab = 49152, shape.hidden = 576, shape.layers = 30, shape.heads = 9, shape.kv_heads = 3;
    shape.intermediate = 1536;
    shape.rope_theta = 100000;
    return shape;
  }
  if (name == "tiny") {
    shape.vocab = 4096, shape.hidden = 256, shape.layers = 4, shape.heads = 4, shape.kv_heads = 4;
    shape.intermediate = 688;
    return shape;
  }
  return Error(Code::kInvalidArgument, "bench.unknown_shape",
               cat("shape \"", name, "\" is not known; choose tiny or smollm2-135m"));
}

Result<v1::BenchReport> bench_train(const v1::BenchConfig& config, const BenchEnvironment& environment) {
  const auto begin = Clock::now();
  INVAR_ASSIGN(const ModelShape shape, bench_shape(config.shape()));
  const auto pool = pool_of(config, environment);
  const int64_t sequence = config.sequence_length(), sequences = config.micro_batch(), tokens = sequence * sequences;
  ModelOptions options;
  options.precision.recipe = static_cast<Recipe>(config.recipe());
  options.max_tokens = tokens;
  INVAR_ASSIGN(auto device, Device::open("cpu", pool));
  INVAR_ASSIGN(auto model, Model::create(std::move(device), shape, options));
  INVAR_ASSIGN(auto learner, Learner::create(std::move(model), {}));
  RandomWeights weights(1, pool);
  INVAR_TRY(learner->load(weights));

  Rng rng(2);
  std::vector<int32_t> ids(static_cast<size_t>(tokens)), targets(ids.size()), offsets;
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(shape.vocab)));
  for (int32_t& id : targets) id = static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(shape.vocab)));
  for (int64_t s = 0; s <= sequences; ++s) offsets.push_back(static_cast<int32_t>(s * sequence));
  const MicroBatch batch{.ids = ids, .targets = targets, .offsets = offsets, .positions = {}};

  double forward_backward_seconds = 0, update_seconds = 0;
  const auto step = [&]() -> Result<double> {
    INVAR_TRY(check_cancel(environment.cancel));
    const auto start = Clock::now();
    INVAR_TRY(learner->begin_window(1));
    INVAR_TRY(learner->forward_backward(batch).status());
    forward_backward_seconds += seconds_since(start);
    const auto middle = Clock::now();
    INVAR_ASSIGN(const StepOutcome outcome, learner->step(1e-4));
    update_seconds += seconds_since(middle);
    return outcome.loss;
  };
  const int64_t repeats = config.repeats() > 0 ? config.repeats() : 5;
  INVAR_ASSIGN(const double first_loss, step());
  v1::BenchReport report;
  report.set_first_step_seconds(seconds_since(begin));
  report.set_first_loss(first_loss);
  learner->model().profile(true);
  forward_backward_seconds = update_seconds = 0;
  std::vector<double> seconds;
  for (int64_t i = 0; i < repeats; ++i) {
    const auto start = Clock::now();
    INVAR_ASSIGN(const double loss, step());
    seconds.push_back(seconds_since(start));
    report.set_last_loss(loss);
    if (environment.on_step) environment.on_step(i + 1, repeats, loss);
  }
  double total = 0;
  for (const double value : seconds) total += value;
  std::sort(seconds.begin(), seconds.end());
  const double best = seconds.front(), median = seconds[seconds.size() / 2];
  report.set_kind(v1::BENCH_KIND_TRAIN);
  report.set_shape(config.shape());
  report.set_recipe(config.recipe());
  report.set_sequence_length(sequence);
  report.set_micro_batch(sequences);
  report.set_threads(pool->threads());
  report.set_repeats(repeats);
  report.set_seconds_best(best);
  report.set_seconds_median(median);
  report.set_tokens_per_second(static_cast<double>(tokens) / best);
  report.set_tokens_per_second_median(static_cast<double>(tokens) / median);
  report.set_gflops(flops_per_token(shape, sequence) * static_cast<double>(tokens) / best * 1e-9);
  report.set_resident_bytes(resident_bytes(*environment.files));
  report.set_parameters(learner->parameter_count());
  const auto add_line = [&](std::string name, int64_t calls, double spent) {
    v1::ProfileLine* line = report.add_profile();
    line->set_name(std::move(name));
    line->set_calls(calls);
    line->set_seconds(spent);
    line->set_share(spent / total);
  };
  add_line("forward and backward", repeats, forward_backward_seconds);
  add_line("norm, clip and update", repeats, update_seconds);
  auto entries = learner->model().profile().entries();
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  for (const auto& entry : entries) add_line(entry.name, entry.calls, entry.seconds);
  return report;
}

Result<v1::BenchReport> bench_parity(const v1::BenchConfig& config, const BenchEnvironment& environment) {
  if (config.reference().empty()) {
    return Error(Code::kInvalidArgument, "config.missing_field",
                 "reference: the folder of the reference run is not named");
  }
  const auto pool = pool_of(config, environment);
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
