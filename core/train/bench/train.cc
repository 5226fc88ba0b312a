// Optimizer steps of a known shape on random tokens, and where their time goes.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/base/rng.h"
#include "core/device/limits.h"
#include "core/train/bench/measure.h"
#include "core/train/learner.h"

namespace invar {
namespace {

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

// FLOPs a token that the operation of a profile's line needs; 0 for lines that are not products. Attention is causal.
double flops_of(std::string_view name, const ModelShape& shape, int64_t sequence) {
  const double head = static_cast<double>(shape.vocab * shape.hidden);
  const double layers = static_cast<double>(parameter_count(shape)) - (shape.tie_embeddings ? 1 : 2) * head;
  const double attention = 2.0 * static_cast<double>(shape.layers * shape.query_size() * sequence);
  if (name.starts_with("linear.")) return 2 * layers;
  if (name == "head.loss") return 6 * head;
  if (name == "attention.forward") return attention;
  return name == "attention.backward" ? 2.5 * attention : 0;
}

// Of a whole step, as models are usually rated: the backward pass counts twice the forward one.
double flops_per_token(const ModelShape& shape, int64_t sequence) {
  return 3 * flops_of("linear.", shape, sequence) + flops_of("head.loss", shape, sequence) +
         3 * flops_of("attention.forward", shape, sequence);
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
  const double begin = bench_now();
  INVAR_ASSIGN(const ModelShape shape, bench_shape(config.shape()));
  const auto pool = bench_pool(config, environment);
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
    const double start = bench_now();
    INVAR_TRY(learner->begin_window(1));
    INVAR_TRY(learner->forward_backward(batch).status());
    forward_backward_seconds += bench_now() - start;
    const double middle = bench_now();
    INVAR_ASSIGN(const StepOutcome outcome, learner->step(1e-4));
    update_seconds += bench_now() - middle;
    return outcome.loss;
  };
  const int64_t repeats = config.repeats() > 0 ? config.repeats() : 5;
  INVAR_ASSIGN(const double first_loss, step());
  const double first_step_seconds = bench_now() - begin;
  const int64_t resident = resident_bytes(*environment.files);
  learner->model().profile(true);
  forward_backward_seconds = update_seconds = 0;
  MachineLimits limits(*pool);
  const DType dtype = activation_dtype(options.precision.recipe);
  std::vector<double> seconds;
  double last_loss = first_loss, total = 0;
  for (int64_t i = 0; i < repeats; ++i) {
    limits.sample_products(dtype);
    const double start = bench_now();
    INVAR_ASSIGN(last_loss, step());
    seconds.push_back(bench_now() - start);
    total += seconds.back();
    if (environment.on_step) environment.on_step(i + 1, repeats, last_loss);
  }
  const BenchTimes times = bench_times(std::move(seconds));
  v1::BenchReport report = bench_report(config, *pool, repeats, times);
  report.set_first_step_seconds(first_step_seconds);
  report.set_resident_bytes(resident);
  report.set_first_loss(first_loss);
  report.set_last_loss(last_loss);
  report.set_shape(config.shape());
  report.set_recipe(config.recipe());
  report.set_sequence_length(sequence);
  report.set_micro_batch(sequences);
  report.set_tokens_per_second(static_cast<double>(tokens) / times.best);
  report.set_tokens_per_second_median(static_cast<double>(tokens) / times.median);
  report.set_gflops(flops_per_token(shape, sequence) * static_cast<double>(tokens) / times.best * 1e-9);
  report.set_parameters(learner->parameter_count());
  add_bench_limit(report, "step, products", report.gflops(), limits.products(), "GFLOP/s");
  const auto add_line = [&](std::string_view name, int64_t calls, double spent) {
    v1::ProfileLine* line = report.add_profile();
    line->set_name(std::string(name));
    line->set_calls(calls);
    line->set_seconds(spent);
    line->set_share(spent / total);
    const double flops = flops_of(name, shape, sequence) * static_cast<double>(tokens * repeats);
    if (flops == 0) return;
    line->set_gflops(flops / spent * 1e-9);
    add_bench_limit(report, std::string(name), line->gflops(), limits.products(), "GFLOP/s");
  };
  add_line("forward and backward", repeats, forward_backward_seconds);
  add_line("norm, clip and update", repeats, update_seconds);
  auto entries = learner->model().profile().entries();
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  for (const auto& entry : entries) add_line(entry.name, entry.calls, entry.seconds);
  return report;
}

}  // namespace invar
