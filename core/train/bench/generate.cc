// A prompt in one pass, then tokens one by one: each reads every weight once, so memory is the limit.
#include <algorithm>
#include <vector>

#include "core/device/limits.h"
#include "core/model/weight_source.h"
#include "core/train/bench/measure.h"
#include "core/train/inference/inference.h"

namespace invar {
namespace {

constexpr int64_t kOwnTokens = 64;

// A model with random weights, or the folder's.
struct Subject {
  std::unique_ptr<Model> owned;
  std::unique_ptr<LoadedModel> loaded;
  Model& model() { return owned != nullptr ? *owned : loaded->model(); }
};

Result<Subject> make_subject(const v1::BenchConfig& config, const BenchEnvironment& environment,
                             const std::shared_ptr<ThreadPool>& pool) {
  Subject subject;
  if (!config.source().empty()) {
    v1::LoadConfig load;
    load.set_path(config.source());
    load.set_recipe(config.recipe());
    load.set_device("cpu");
    load.set_max_sequence_length(config.sequence_length());
    INVAR_ASSIGN(subject.loaded, LoadedModel::load(load, {.pool = pool, .files = environment.files}));
    return subject;
  }
  INVAR_ASSIGN(const ModelShape shape, bench_shape(config.shape()));
  INVAR_ASSIGN(auto device, Device::open("cpu", pool));
  ModelOptions options;
  options.precision.recipe = static_cast<Recipe>(config.recipe());
  options.trainable = false;
  options.max_tokens = options.max_positions = config.sequence_length();
  INVAR_ASSIGN(subject.owned, Model::create(std::move(device), shape, options));
  RandomWeights weights(1, pool);
  INVAR_TRY(subject.owned->load(weights));
  return subject;
}

// Weights that a token reads: all, but of an embedding table that is not the head only one row.
double bytes_a_token(Model& model) {
  double bytes = 0;
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.spec.role == ParameterRole::kEmbedding && !model.shape().tie_embeddings) continue;
    bytes += static_cast<double>(bytes_of(parameter.dtype, parameter.count));
  }
  return bytes;
}

}  // namespace

Result<v1::BenchReport> bench_generate(const v1::BenchConfig& config, const BenchEnvironment& environment) {
  const auto pool = bench_pool(config, environment);
  const int64_t context = config.sequence_length();
  const int64_t tokens = config.repeats() > 0 ? config.repeats() : std::min(kOwnTokens, context / 2);
  if (tokens >= context) {
    return Error(Code::kInvalidArgument, "bench.context",
                 cat("repeats is ", tokens, ", sequence_length is ", context,
                     ": the context holds a prompt of at least one token and the new ones"));
  }
  INVAR_ASSIGN(Subject subject, make_subject(config, environment, pool));
  Model& model = subject.model();
  MachineLimits limits(*pool);
  INVAR_TRY(limits.use_memory(model.device()));
  const DType dtype = activation_dtype(model.recipe());

  const int64_t prompt_tokens = context - tokens;
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < prompt_tokens; ++i) prompt.push_back(static_cast<int32_t>(i * 7919 % model.shape().vocab));
  std::vector<float> logits(static_cast<size_t>(model.shape().vocab));
  INVAR_ASSIGN(const auto cache, model.new_cache(context));
  // Once to touch all memory; then measured.
  const auto read_prompt = [&]() -> Status {
    cache->truncate(0);
    const int64_t piece = model.options().max_tokens;
    for (int64_t first = 0; first < prompt_tokens; first += piece) {
      const auto part = std::span<const int32_t>(prompt).subspan(
          static_cast<size_t>(first), static_cast<size_t>(std::min(piece, prompt_tokens - first)));
      INVAR_TRY(model.extend(*cache, part, logits.data()));
    }
    return {};
  };
  BenchEnvironment quiet = environment;
  quiet.on_step = {};
  INVAR_TRY(read_prompt());
  INVAR_ASSIGN(const BenchTimes prompt_times, bench_measure(
                                                  quiet, 3, [&] { limits.sample_products(dtype); }, read_prompt));

  int64_t done = 0;
  INVAR_ASSIGN(const BenchTimes token_times, bench_measure(
                                                 environment, tokens,
                                                 [&] {
                                                   if (done++ % 8 == 0) limits.sample_read();
                                                 },
                                                 [&]() -> Status {
                                                   const auto best = std::max_element(logits.begin(), logits.end());
                                                   const auto id = static_cast<int32_t>(best - logits.begin());
                                                   return model.extend(*cache, {&id, 1}, logits.data());
                                                 }));
  v1::BenchReport report = bench_report(config, *pool, tokens, token_times);
  report.set_recipe(config.recipe());
  report.set_sequence_length(context);
  if (config.source().empty()) report.set_shape(config.shape());
  report.set_tokens_per_second(1 / token_times.best);
  report.set_tokens_per_second_median(1 / token_times.median);
  const double bytes = bytes_a_token(model) * 1e-9;
  report.set_gbytes_per_second(bytes / token_times.best);
  add_bench_limit(report, "tokens, weights read", bytes / token_times.best, limits.read(), "GB/s");
  add_bench_limit(report, "tokens, median", bytes / token_times.median, limits.read(), "GB/s");
  double weights = 0;
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.spec.layer >= 0) weights += static_cast<double>(parameter.count);
  }
  const double flops = 2 * weights * static_cast<double>(prompt_tokens);
  add_bench_limit(report, "prompt, layers' products", flops / prompt_times.best * 1e-9, limits.products(), "GFLOP/s");
  report.add_notes(cat("prompt: ", prompt_tokens, " tokens, ",
                       static_cast<int64_t>(static_cast<double>(prompt_tokens) / prompt_times.best), " tokens/s"));
  return report;
}

}  // namespace invar
