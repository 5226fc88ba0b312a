#include "core/calibrate/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <set>
#include <vector>

#include "core/calibrate/activation_scheme.h"
#include "core/calibrate/comparison.h"
#include "core/calibrate/tokens.h"
#include "core/config/config.h"
#include "core/model/weights_folder.h"
#include "core/train/inference/quantized_weights.h"

namespace invar {
namespace {

using Clock = std::chrono::steady_clock;

// A checkpoint under measurement: where it lies, how its matrices are stored and how their inputs are quantised.
struct Checkpoint {
  std::string path;
  ModelShape shape;
  std::unique_ptr<QuantizedWeights> weights;
  std::vector<ActivationScheme> schemes;  // by parameter number
  bool quantized = false;                 // a matrix is stored in few bits
};

Result<Checkpoint> open_checkpoint(FileSystem& files, const std::string& path, bool with_schemes) {
  if (!files.is_directory(path)) {
    return Error(Code::kNotFound, "model.not_found", cat(path, ": no such model folder"));
  }
  Checkpoint checkpoint;
  checkpoint.path = path;
  INVAR_ASSIGN(checkpoint.shape, read_model_shape(files, path));
  INVAR_ASSIGN(checkpoint.weights, QuantizedWeights::open(files, path, checkpoint.shape));
  const size_t parameters = parameters_of(checkpoint.shape).size();
  INVAR_ASSIGN(const Declared declared, read_declared(checkpoint.weights->folder()));
  checkpoint.schemes.resize(parameters);
  for (size_t i = 0; i < parameters; ++i) {
    const TensorPlan& plan = checkpoint.weights->plan(i);
    checkpoint.quantized = checkpoint.quantized || plan.quantized();
    if (!with_schemes) continue;
    INVAR_ASSIGN(checkpoint.schemes[i], activation_scheme(checkpoint.weights->folder(), declared, plan));
  }
  return checkpoint;
}

Status same_shape(const Checkpoint& source, const Checkpoint& destination) {
  const ModelShape &a = source.shape, &b = destination.shape;
  const struct {
    const char* name;
    int64_t source, destination;
  } sizes[] = {
      {"vocab_size", a.vocab, b.vocab}, {"hidden_size", a.hidden, b.hidden}, {"num_hidden_layers", a.layers, b.layers}};
  for (const auto& size : sizes) {
    if (size.source != size.destination) {
      return Error(
          Code::kInvalidArgument, "calibrate.shape_mismatch",
          cat(destination.path, ": ", size.name, " is ", size.destination, ", ", source.path, " has ", size.source));
    }
  }
  return {};
}

struct Pass {
  Recipe recipe = Recipe::kBf16;
  bool serve = false;  // inputs quantised as declared
};

Result<std::unique_ptr<Model>> make_model(Checkpoint& checkpoint, const Pass& pass, int64_t max_tokens,
                                          int64_t sequence_length, const v1::CalibrateConfig& config,
                                          const CalibrateContext& context) {
  ModelOptions options;
  options.precision.recipe = pass.recipe;
  options.trainable = false;
  options.max_tokens = max_tokens;
  options.max_positions = sequence_length;
  if (pass.serve) {
    options.served_input = [schemes = checkpoint.schemes,
                            parameters = parameters_of(checkpoint.shape)](const ParameterSpec& weight) {
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].name == weight.name) return schemes[i].input;
      }
      return ServedInput{};
    };
  }
  INVAR_ASSIGN(auto device, Device::open(config.device(), context.pool, context.device));
  INVAR_ASSIGN(auto model, Model::create(std::move(device), checkpoint.shape, options));
  INVAR_TRY(model->load(*checkpoint.weights));
  INVAR_TRY(check_cancel(context.cancel));
  return model;
}

std::string percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.4f%%", 100 * ratio);
  return text;
}

void judge(const v1::CalibrateConfig& config, v1::CalibrateReport* report) {
  const double delta = report->loss_delta();
  report->set_max_loss_delta(config.max_loss_delta());
  if (config.max_kl() > 0) report->set_max_kl(config.max_kl());
  // A comparison with NaN is false: what is not a number does not pass.
  const bool loss_passes = std::fabs(delta) <= config.max_loss_delta();
  const bool kl_passes = config.max_kl() == 0 || report->kl_mean() <= config.max_kl();
  report->set_passed(loss_passes && kl_passes);
  std::string verdict = cat("loss ", percent(delta), loss_passes ? " is within " : " is outside ", "the gate of ",
                            percent(config.max_loss_delta()).substr(1));
  if (config.max_kl() > 0) {
    verdict += cat("; mean KL ", report->kl_mean(), kl_passes ? " is within " : " is above ", config.max_kl());
  }
  report->set_verdict(verdict);
  const double half_width = 1.96 * report->difference_standard_error() / report->source_loss();
  if (!(half_width <= config.max_loss_delta())) {
    report->add_warnings(cat("the 95% interval of the loss difference is ", percent(half_width).substr(1),
                             " wide on each side, wider than the gate: ", report->tokens(),
                             " tokens are too few for this claim"));
  }
}

void add_layers(const std::vector<ErrorStats>& layers, v1::CalibrateReport* report) {
  for (size_t i = 0; i < layers.size(); ++i) {
    auto* layer = report->add_layers();
    layer->set_layer(static_cast<int64_t>(i));
    // JSON has no infinity: a layer without any error has no figure.
    if (std::isfinite(layers[i].sqnr_db())) layer->set_sqnr_db(layers[i].sqnr_db());
  }
}

}  // namespace

Result<v1::CalibrateReport> calibrate(const v1::CalibrateConfig& given, const CalibrateContext& context) {
  const auto start = Clock::now();
  INVAR_TRY(config::check(given));
  v1::CalibrateConfig config = config::with_defaults(given);
  for (const auto& [name, path] :
       {std::pair{"source", config.source()}, std::pair{"destination", config.destination()}}) {
    if (path.empty())
      return Error(Code::kInvalidArgument, "config.missing_field", cat(name, ": must be given: a string"));
  }
  const bool serve = config.activations() == v1::ACTIVATIONS_AS_SERVED;
  INVAR_ASSIGN(Checkpoint source, open_checkpoint(context.files, config.source(), serve));
  INVAR_ASSIGN(Checkpoint destination, open_checkpoint(context.files, config.destination(), false));
  INVAR_TRY(same_shape(source, destination));
  INVAR_ASSIGN(const CalibrationTokens tokens, CalibrationTokens::read(config, given.data().has_sequence_length(),
                                                                       source.shape, context.files, context.cancel));

  v1::CalibrateReport report;
  report.set_source(config.source());
  report.set_destination(config.destination());
  report.set_activations(config.activations());
  std::set<std::string> unknown;
  bool quantises_inputs = false;
  for (const ActivationScheme& scheme : source.schemes) {
    quantises_inputs = quantises_inputs || scheme.input.granularity != Granularity::kNone;
    if (!scheme.why.empty()) unknown.insert(scheme.why);
  }
  for (const std::string& why : unknown) {
    report.add_warnings(cat("activations cannot be emulated as served (", why, "): they stay unquantised there"));
  }

  const int64_t length = tokens.sequence_length(), at_once = std::min(config.micro_batch(), tokens.sequences());
  const bool weights_alone = serve && quantises_inputs;
  Progress progress{context.progress, 0, tokens.sequences() * length * (weights_alone ? 3 : 2)};

  std::vector<float> weight_only_losses;
  if (weights_alone) {
    INVAR_ASSIGN(auto model, make_model(source, {.recipe = Recipe::kFp32, .serve = false}, at_once * length, length,
                                        config, context));
    INVAR_ASSIGN(weight_only_losses, token_losses(*model, tokens, at_once, context.cancel, &progress));
  }
  const Pass source_pass{.recipe = source.quantized ? Recipe::kFp32 : Recipe::kBf16, .serve = weights_alone};
  INVAR_ASSIGN(auto source_model, make_model(source, source_pass, at_once * length, length, config, context));
  INVAR_ASSIGN(auto destination_model, make_model(destination, {.recipe = Recipe::kBf16, .serve = false},
                                                  at_once * length, length, config, context));
  INVAR_ASSIGN(const Comparison result,
               compare(*source_model, *destination_model, tokens, at_once, *context.pool, context.cancel, &progress));

  report.set_tokens(result.tokens());
  report.set_sequences(tokens.sequences());
  report.set_source_loss(result.source_loss());
  report.set_destination_loss(result.destination_loss());
  report.set_loss_delta((result.destination_loss() - result.source_loss()) / result.source_loss());
  report.set_difference_standard_error(result.difference_standard_error());
  report.set_kl_mean(result.kl_mean());
  report.set_kl_p99(result.kl_quantile(0.99));
  report.set_kl_max(result.kl_quantile(1));
  report.set_top1_agreement(result.top1_agreement());
  if (weights_alone) report.set_weight_only_loss(mean_of(weight_only_losses, tokens));
  add_layers(result.layers, &report);
  judge(config, &report);
  report.set_seconds(std::chrono::duration<double>(Clock::now() - start).count());
  return report;
}

}  // namespace invar
