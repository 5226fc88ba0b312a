#include "core/train/parity.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/model/weights_folder.h"
#include "core/optim/schedule.h"
#include "core/text/batch_source.h"
#include "core/text/token_buffer.h"
#include "core/train/evaluate.h"
#include "core/train/learner.h"

namespace invar {
namespace {

using Json = nlohmann::ordered_json;

struct Reference {
  ModelShape shape;
  int64_t batch = 0, sequence = 0, steps = 0, eval_start = 0;
  Schedule schedule;
  LearnerOptions learner;
};

Result<Reference> read_reference(const std::string& path, FileSystem& files) {
  INVAR_ASSIGN(const std::string text, read_text(files, path, 1 << 20));
  try {
    const auto json = Json::parse(text);
    const auto& model = json.at("model");
    Reference reference;
    ModelShape& shape = reference.shape;
    shape.family = model.at("type").get<std::string>();
    shape.vocab = model.at("vocab_size").get<int64_t>();
    shape.hidden = model.at("hidden_size").get<int64_t>();
    shape.layers = model.at("num_hidden_layers").get<int64_t>();
    shape.heads = model.at("num_attention_heads").get<int64_t>();
    shape.kv_heads = model.at("num_key_value_heads").get<int64_t>();
    shape.head_dim = model.at("head_dim").get<int64_t>();
    shape.intermediate = model.at("intermediate_size").get<int64_t>();
    shape.norm_eps = model.at("rms_norm_eps").get<double>();
    shape.rope_theta = model.at("rope_theta").get<double>();
    shape.tie_embeddings = model.at("tie_word_embeddings").get<bool>();
    INVAR_TRY(validate_shape(shape, path));
    reference.batch = json.at("batch").get<int64_t>();
    reference.sequence = json.at("seq").get<int64_t>();
    reference.steps = json.at("steps").get<int64_t>();
    reference.eval_start = json.at("eval_start").get<int64_t>();
    reference.schedule.kind = ScheduleKind::kCosine;
    reference.schedule.peak = json.at("peak_lr").get<double>();
    reference.schedule.min_ratio = json.at("min_lr").get<double>() / reference.schedule.peak;
    reference.schedule.warmup_steps = json.at("warmup_steps").get<int64_t>();
    reference.schedule.end_step = reference.steps;
    reference.learner.adamw = {.beta1 = json.at("betas").at(0).get<double>(),
                               .beta2 = json.at("betas").at(1).get<double>(),
                               .eps = json.at("eps").get<double>(),
                               .weight_decay = json.at("weight_decay").get<double>()};
    reference.learner.clip_norm = json.at("clip_norm").get<double>();
    return reference;
  } catch (const nlohmann::json::exception& error) {
    return Error(Code::kDataLoss, "parity.bad_reference", cat(path, ": ", error.what()));
  }
}

// L2 norm, sum and first elements of FP32 values times `factor`, as the reference curves have them.
Json summary(const float* values, int64_t count, int first, double factor, bool with_sum) {
  double squares = 0, sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i] * factor;
    squares += value * value;
    sum += value;
  }
  Json json = {{"l2", std::sqrt(squares)}};
  if (with_sum) json["sum"] = sum;
  Json head = Json::array();
  for (int64_t i = 0; i < std::min<int64_t>(count, first); ++i) head.push_back(values[i] * factor);
  json[cat("first", first)] = head;
  return json;
}

Json gradient_snapshot(const Learner& learner, int64_t tokens) {
  Json json = Json::object();
  for (const Parameter& parameter : learner.model().parameters()) {
    json[parameter.spec.name] =
        summary(parameter.gradient, parameter.count, 8, 1 / static_cast<double>(tokens), /*with_sum=*/true);
  }
  return json;
}

Json weight_snapshot(const Learner& learner) {
  Json json = Json::object();
  const auto parameters = learner.model().parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    json[parameters[i].spec.name] = summary(learner.master(i), parameters[i].count, 4, 1, /*with_sum=*/false);
  }
  return json;
}

}  // namespace

Result<ParityCurve> run_parity(const ParityOptions& options, std::shared_ptr<ThreadPool> pool, FileSystem& files,
                               const std::function<void(int64_t step, double loss)>& on_step,
                               const CancelFlag* cancel) {
  const auto in_folder = [&](std::string_view name) { return join_path(options.reference, name); };
  INVAR_ASSIGN(const Reference reference, read_reference(in_folder("hparams.json"), files));
  const int64_t micro_batch = options.micro_batch > 0 ? options.micro_batch : reference.batch;
  const int64_t steps = options.steps > 0 ? std::min(options.steps, reference.steps) : reference.steps;
  if (reference.batch % micro_batch != 0) {
    return Error(Code::kInvalidArgument, "parity.micro_batch",
                 cat("micro-batch ", micro_batch, " does not divide the batch ", reference.batch));
  }
  INVAR_ASSIGN(auto token_ids,
               read_token_file(files, in_folder("tokens.u16"), 2, static_cast<int32_t>(reference.shape.vocab)));
  INVAR_ASSIGN(auto order, read_i32_file(files, in_folder("order.i32")));
  const auto tokens = std::make_shared<TokenBuffer>(std::move(token_ids));
  INVAR_ASSIGN(auto cut, Sequences::create(tokens, {.length = reference.sequence}));
  const auto sequences = std::make_shared<Sequences>(std::move(cut));
  INVAR_ASSIGN(auto source, BatchSource::with_order(sequences, std::move(order)));

  ModelOptions model_options;
  model_options.precision.recipe = options.recipe;
  model_options.max_tokens = std::max(micro_batch, int64_t{8}) * reference.sequence;
  const int threads = pool->threads();
  INVAR_ASSIGN(auto device, Device::open(options.device, std::move(pool)));
  INVAR_ASSIGN(auto model, Model::create(std::move(device), reference.shape, model_options));
  INVAR_ASSIGN(auto learner, Learner::create(std::move(model), reference.learner));
  INVAR_ASSIGN(auto folder, CheckpointFolder::open(files, in_folder("init.safetensors")));
  INVAR_ASSIGN(auto weights, FolderWeights::create(std::move(folder), reference.shape));
  INVAR_TRY(learner->load(*weights));

  ParityCurve curve;
  Json snapshots = Json::object();
  TokenBatch batch;
  using Clock = std::chrono::steady_clock;
  for (int64_t step = 0; step < steps; ++step) {
    INVAR_TRY(check_cancel(cancel));
    const auto start = Clock::now();
    INVAR_TRY(learner->begin_window(reference.batch / micro_batch));
    for (int64_t first = 0; first < reference.batch; first += micro_batch) {
      INVAR_TRY(source.next(micro_batch, &batch));
      INVAR_TRY(learner->forward_backward(micro_batch_of(batch)).status());
    }
    INVAR_ASSIGN(const StepOutcome outcome, learner->step(reference.schedule.lr_at(step)));
    curve.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    if (outcome.skipped) {
      return Error(Code::kAborted, "train.not_finite",
                   cat("step ", step + 1, ": ", outcome.first_bad, " is not finite"));
    }
    curve.loss.push_back(outcome.loss);
    curve.grad_norm.push_back(outcome.grad_norm);
    curve.lr.push_back(outcome.lr);
    curve.tokens += outcome.tokens;
    if (step == 0) snapshots["grad_step0"] = gradient_snapshot(*learner, outcome.tokens);
    for (const int64_t at : {int64_t{1}, int64_t{10}, int64_t{100}, reference.steps}) {
      if (step + 1 == at) snapshots[cat("weights_after_", at)] = weight_snapshot(*learner);
    }
    if (on_step) on_step(step + 1, outcome.loss);
  }
  Json json = {{"mode", recipe_name(options.recipe)}, {"threads", threads}, {"loss", curve.loss},
               {"grad_norm", curve.grad_norm},        {"lr", curve.lr},     {"seconds", curve.seconds}};
  if (options.evaluate) {
    constexpr int64_t kWindows = 64, kBatch = 8;
    LossSum total;
    for (int64_t first = 0; first < kWindows; first += kBatch) {
      INVAR_TRY(check_cancel(cancel));
      batch.clear();
      for (int64_t i = first; i < first + kBatch; ++i) {
        const int64_t begin = reference.eval_start + i * reference.sequence;
        if (begin + reference.sequence >= tokens->size()) {
          return Error(
              Code::kDataLoss, "parity.bad_reference",
              cat(in_folder("tokens.u16"), ": evaluation window ", i, " lies behind its ", tokens->size(), " tokens"));
        }
        sequences->append_at(begin, &batch);
      }
      INVAR_ASSIGN(const LossSum loss, learner->model().evaluate(micro_batch_of(batch)));
      total.sum += loss.sum;
      total.count += loss.count;
    }
    curve.eval_loss = total.sum / static_cast<double>(total.count);
    json["eval_loss"] = curve.eval_loss;
  }
  json["snapshots"] = snapshots;
  curve.json = json.dump();
  return curve;
}

}  // namespace invar
