// Training steps and generation of a known shape: tokens per second, share of the time by operation.
//
//   model_bench --shape 135m --recipe bf16 --sequence 512 --micro-batch 1 --threads 2 --steps 5
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "core/model/generate.h"
#include "core/model/model.h"

namespace invar {
namespace {

ModelShape shape_named(const std::string& name) {
  ModelShape shape;
  shape.head_dim = 64;
  shape.norm_eps = 1e-5;
  shape.tie_embeddings = true;
  shape.max_positions = 8192;
  if (name == "135m") {  // SmolLM2-135M
    shape.hidden = 576, shape.layers = 30, shape.heads = 9, shape.kv_heads = 3, shape.intermediate = 1536;
    shape.vocab = 49152;
  } else {
    shape.hidden = 256, shape.layers = 4, shape.heads = 4, shape.kv_heads = 2, shape.intermediate = 688;
    shape.vocab = 4096;
  }
  return shape;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void print_profile(const OperationProfile& profile, double wall, int64_t steps) {
  auto entries = profile.entries();
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  for (const auto& entry : entries) {
    std::printf("  %-24s %8.2f ms  %5.1f %%  %6.1f calls\n", entry.name,
                1e3 * entry.seconds / static_cast<double>(steps), 100 * entry.seconds / wall,
                static_cast<double>(entry.calls) / static_cast<double>(steps));
  }
  std::printf("  %-24s %8.2f ms\n", "outside operations",
              1e3 * (wall - profile.total_seconds()) / static_cast<double>(steps));
}

Status run(int argc, char** argv, int& exit_code) {
  std::string shape_name = "tiny", recipe_text = "bf16";
  int64_t sequence = 512, micro_batch = 1, steps = 5, generate_tokens = 0;
  int threads = 2;
  bool recompute = false;
  CLI::App app("training step of a known shape");
  app.add_option("--shape", shape_name)->check(CLI::IsMember({"tiny", "135m"}));
  app.add_option("--recipe", recipe_text);
  app.add_option("--sequence", sequence);
  app.add_option("--micro-batch", micro_batch);
  app.add_option("--threads", threads);
  app.add_option("--steps", steps)->check(CLI::PositiveNumber);
  app.add_option("--generate", generate_tokens, "decode this many tokens instead of training");
  app.add_flag("--recompute", recompute);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error);
    return {};
  }
  INVAR_ASSIGN(const Recipe recipe, recipe_from_name(recipe_text));
  const ModelShape shape = shape_named(shape_name);
  auto pool = std::make_shared<ThreadPool>(threads);
  INVAR_ASSIGN(auto device, Device::open("cpu", pool));
  ModelOptions options;
  options.precision.recipe = recipe;
  options.trainable = generate_tokens == 0;
  options.max_tokens = sequence * micro_batch;
  options.max_positions = std::max(sequence, sequence + generate_tokens);
  options.recompute = recompute ? Recompute::kLayer : Recompute::kNone;
  double start = now();
  INVAR_ASSIGN(auto model, Model::create(device, shape, options));
  const double created = now();
  RandomWeights weights(1, pool);
  INVAR_TRY(model->load(weights));
  std::printf("create %.0f ms, random weights %.0f ms; MB: working %.0f gradients %.0f packed %.0f arena %.0f\n",
              1e3 * (created - start), 1e3 * (now() - created), model->memory().working / 1e6,
              model->memory().gradients / 1e6, model->memory().packed / 1e6, model->memory().arena / 1e6);
  std::vector<int32_t> ids, targets, offsets = {0};
  Rng rng(1);
  for (int64_t i = 0; i < sequence * micro_batch; ++i) {
    ids.push_back(static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(shape.vocab))));
    targets.push_back(static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(shape.vocab))));
    if ((i + 1) % sequence == 0) offsets.push_back(static_cast<int32_t>(i + 1));
  }
  if (generate_tokens > 0) {
    INVAR_TRY(model->logits({std::span(ids).first(1), {}, std::vector<int32_t>{0, 1}, {}},
                            std::vector<float>(static_cast<size_t>(shape.vocab)).data()));
    model->profile(true);
    INVAR_ASSIGN(const auto result, generate(*model, std::span(ids).first(static_cast<size_t>(sequence)),
                                             {.max_new_tokens = generate_tokens}));
    std::printf("prefill %.0f tokens/s, decode %.1f tokens/s, %.1f GB/s of weights\n",
                static_cast<double>(sequence) / result.prefill_seconds,
                static_cast<double>(generate_tokens - 1) / result.decode_seconds,
                static_cast<double>(model->memory().working) * static_cast<double>(generate_tokens - 1) /
                    result.decode_seconds / 1e9);
    print_profile(model->profile(), result.prefill_seconds + result.decode_seconds, generate_tokens);
    return {};
  }
  std::vector<double> times;
  double wall = 0;
  for (int64_t step = -1; step < steps; ++step) {
    if (step == 0) model->profile(true);
    start = now();
    INVAR_ASSIGN(const LossSum loss, model->forward_backward({ids, targets, offsets, {}}, {}));
    INVAR_ASSIGN(const double norm_squared, model->gradient_norm_squared());
    INVAR_TRY(model->weights_changed());
    const double seconds = now() - start;
    if (step < 0) {
      std::printf("loss %.4f, gradient norm^2 %.4f, first step %.0f ms\n", loss.sum / static_cast<double>(loss.count),
                  norm_squared, 1e3 * seconds);
      continue;
    }
    times.push_back(seconds);
    wall += seconds;
  }
  std::sort(times.begin(), times.end());
  const double tokens = static_cast<double>(ids.size());
  std::printf("%.1f tokens/s best, %.1f median (without optimizer)\n", tokens / times[0],
              tokens / times[times.size() / 2]);
  print_profile(model->profile(), wall, steps);
  return {};
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) {
  int exit_code = 0;
  const invar::Status status = invar::run(argc, argv, exit_code);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? exit_code : 1;
}
