#include "core/model/decoder.h"

#include <algorithm>
#include <cmath>

#include "core/model/rope_table.h"

namespace invar {

Result<std::unique_ptr<Model>> Model::create(std::shared_ptr<Device> device, const ModelShape& shape,
                                             const ModelOptions& options) {
  INVAR_ASSIGN(std::unique_ptr<Model> model, DecoderModel::create(std::move(device), shape, options));
  return model;
}

DecoderModel::DecoderModel(std::shared_ptr<Device> device, const ModelShape& shape, const ModelOptions& options)
    : device_(std::move(device)), shape_(shape), options_(options), recipes_({options.precision.recipe}) {
  for (Recipe recipe : options.other_recipes) {
    if (std::find(recipes_.begin(), recipes_.end(), recipe) == recipes_.end()) recipes_.push_back(recipe);
  }
  if (options_.max_positions == 0) options_.max_positions = options_.max_tokens;
  const NormShape norm{static_cast<float>(shape.norm_eps), static_cast<float>(shape.norm_gain_offset)};
  const double scale = shape.attention_scale > 0 ? shape.attention_scale : 1 / std::sqrt(double(shape.head_dim));
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    attention_.push_back({.hidden = shape.hidden,
                          .heads = shape.heads,
                          .kv_heads = shape.kv_heads,
                          .head_dim = shape.head_dim,
                          .norm = norm,
                          .rope = {},
                          .scale = static_cast<float>(scale),
                          .soft_cap = static_cast<float>(shape.attention_soft_cap),
                          .window = shape.window(layer)});
  }
  mlp_ = {shape.hidden, shape.intermediate, norm, shape.gate == Gate::kSilu ? INVAR_GATE_SILU : INVAR_GATE_GELU_TANH};
  head_ = {norm, static_cast<float>(shape.logit_soft_cap)};
}

Status DecoderModel::make_tables() {
  const int64_t positions = options_.max_positions, count = positions * (shape_.head_dim / 2);
  INVAR_ASSIGN(rope_, make_rope_table(*device_, positions, shape_.head_dim, shape_.rope_theta, shape_.rope_scaling));
  if (shape_.local_rope_theta > 0) {
    INVAR_ASSIGN(local_rope_, make_rope_table(*device_, positions, shape_.head_dim, shape_.local_rope_theta, {}));
  }
  for (AttentionShape& attention : attention_) {
    const bool is_local = attention.window > 0 && shape_.local_rope_theta > 0;
    const float* table = (is_local ? local_rope_ : rope_).as<float>();
    attention.rope = {table, table + count};
  }
  if (!shape_.qkv_bias || !options_.trainable) return {};
  const DType dtype = activation_dtype(recipes_[active_]);
  std::vector<float> ones(static_cast<size_t>(options_.max_tokens), 1.0f);
  INVAR_ASSIGN(ones_, device_->allocate(static_cast<size_t>(bytes_of(dtype, options_.max_tokens))));
  INVAR_TRY(device_->cast(ones_.data(), dtype, ones.data(), DType::kF32, options_.max_tokens));
  ctx_->use_ones(ones_.data());
  return {};
}

Result<std::unique_ptr<DecoderModel>> DecoderModel::create(std::shared_ptr<Device> device, const ModelShape& shape,
                                                           const ModelOptions& options) {
  INVAR_TRY(validate_shape(shape, "model"));
  constexpr int64_t kMostTokens = int64_t{1} << 24;
  if (options.max_tokens < 1 || options.max_tokens > kMostTokens) {
    return Error(Code::kInvalidArgument, "model.max_tokens",
                 cat("max_tokens is ", options.max_tokens, ": expected 1 to ", kMostTokens));
  }
  if (options.max_positions < 0 || options.max_positions > kMostTokens) {
    return Error(Code::kInvalidArgument, "model.max_positions",
                 cat("max_positions is ", options.max_positions, ": expected 0 to ", kMostTokens));
  }
  std::unique_ptr<DecoderModel> model(new DecoderModel(std::move(device), shape, options));
  for (Recipe recipe : model->recipes_) {
    if (recipe == Recipe::kUnspecified) {
      return Error(Code::kInvalidArgument, "precision.unknown_recipe", "the precision recipe is not set");
    }
    if (activation_dtype(recipe) != activation_dtype(options.precision.recipe)) {
      return Error(Code::kInvalidArgument, "model.recipes",
                   cat("recipes ", recipe_name(options.precision.recipe), " and ", recipe_name(recipe),
                       " cannot be used by one model: their activations differ"));
    }
  }
  if (options.served_input && (options.trainable || options.precision.recipe != Recipe::kFp32)) {
    return Error(Code::kInvalidArgument, "model.served_input",
                 cat("inputs quantised as served need recipe fp32 and a model that is not trainable, not recipe ",
                     recipe_name(options.precision.recipe)));
  }
  INVAR_ASSIGN(model->store_, ParameterStore::create(*model->device_, model->arena_, shape, model->options_));
  model->ctx_ = std::make_unique<Context>(*model->device_, model->arena_, *model->store_, shape.layers);
  model->positions_.resize(static_cast<size_t>(options.max_tokens));
  INVAR_TRY(model->make_tables());
  INVAR_TRY(model->plan());
  return model;
}

ModelMemory DecoderModel::memory() const {
  ModelMemory memory = store_->memory();
  memory.arena = static_cast<int64_t>(arena_memory_.bytes() + rope_.bytes() + local_rope_.bytes() + ones_.bytes());
  return memory;
}

MicroBatch DecoderModel::planning_batch() const {
  // Only the lengths are looked at: every token its own sequence is the longest list of offsets.
  const int32_t* nothing = positions_.data();
  const size_t tokens = positions_.size();
  return {{nothing, tokens}, {nothing, tokens}, {nothing, tokens + 1}, {nothing, tokens}};
}

Status DecoderModel::plan() {
  const MicroBatch batch = planning_batch();
  HeadResult ignored;
  for (Recipe recipe : recipes_) {
    store_->use_recipe(recipe);
    const auto add = [&](const char* kind, const std::function<Status()>& pass) -> Status {
      INVAR_ASSIGN(const int program, arena_.plan(cat(kind, " ", recipe_name(recipe)), pass));
      programs_.push_back(program);
      return {};
    };
    if (options_.trainable) {
      INVAR_TRY(add("train", [&] { return train_pass(batch, 1.0f, ignored); }));
    } else {
      programs_.push_back(-1);
    }
    INVAR_TRY(add("evaluate", [&] { return evaluate_pass(batch, {}, ignored); }));
    INVAR_TRY(add("logits", [&] { return logits_pass(batch, nullptr, {}); }));
    INVAR_TRY(add("extend", [&] { return extend_pass(nullptr, batch.ids, nullptr); }));
  }
  store_->use_recipe(recipes_[active_]);
  INVAR_ASSIGN(arena_memory_, device_->allocate(static_cast<size_t>(arena_.bytes())));
  arena_.bind(arena_memory_.data());
  return {};
}

Status DecoderModel::use_recipe(Recipe recipe) {
  const auto found = std::find(recipes_.begin(), recipes_.end(), recipe);
  if (found == recipes_.end()) {
    return Error(Code::kInvalidArgument, "model.recipes",
                 cat("recipe ", recipe_name(recipe), " was not named when the model was made"));
  }
  if (window_open_) {
    return Error(Code::kFailedPrecondition, "model.window_open",
                 "the recipe cannot change inside an accumulation window");
  }
  active_ = static_cast<size_t>(found - recipes_.begin());
  store_->use_recipe(recipe);
  return {};
}

Status DecoderModel::weights_changed() {
  store_->weights_changed();
  return {};
}

Status DecoderModel::load(WeightSource& source, std::span<float* const> masters) {
  const auto parameters = store_->parameters();
  if (!masters.empty() && masters.size() != parameters.size()) {
    return Error(Code::kInvalidArgument, "model.masters",
                 cat(masters.size(), " masters for ", parameters.size(), " parameters"));
  }
  constexpr int64_t kPiece = int64_t{1} << 20;
  std::vector<float> staging;
  for (size_t index = 0; index < parameters.size(); ++index) {
    const Parameter& parameter = parameters[index];
    for (int64_t first = 0; first < parameter.count; first += kPiece) {
      const int64_t count = std::min(kPiece, parameter.count - first);
      float* out;
      if (parameter.dtype == DType::kF32) {
        out = static_cast<float*>(parameter.working) + first;
      } else if (!masters.empty() && masters[index] != nullptr) {
        out = masters[index] + first;
      } else {
        staging.resize(static_cast<size_t>(kPiece));
        out = staging.data();
      }
      INVAR_TRY(source.read(index, parameter.spec, first, count, out));
      if (parameter.dtype == DType::kF32) continue;
      std::byte* working = static_cast<std::byte*>(parameter.working) + bytes_of(parameter.dtype, first);
      INVAR_TRY(device_->cast(working, parameter.dtype, out, DType::kF32, count));
    }
  }
  return weights_changed();
}

void DecoderModel::profile(bool on) {
  if (on) profile_.clear();
  ctx_->profile_into(on ? &profile_ : nullptr);
  store_->profile_into(on ? &profile_ : nullptr);
}

Result<LossSum> DecoderModel::forward_backward(const MicroBatch& batch, const WindowPlace& place) {
  if (!options_.trainable) {
    return Error(Code::kFailedPrecondition, "model.not_trainable", "the model was made without gradients");
  }
  if (!place.first && !window_open_) {
    return Error(Code::kFailedPrecondition, "model.window_closed",
                 "a micro-batch that is not the first needs an open accumulation window");
  }
  INVAR_TRY(check_batch(batch, /*with_targets=*/true));
  window_open_ = true;
  window_complete_ = false;
  store_->begin_micro_batch(place.first, place.last);
  HeadResult result;
  INVAR_TRY(run(kTrain, [&] { return train_pass(batch, place.grad_scale, result); }));
  window_open_ = !place.last;
  window_complete_ = place.last;
  return LossSum{result.loss_sum, result.loss_count};
}

Result<LossSum> DecoderModel::evaluate(const MicroBatch& batch, const TokenResults& results) {
  INVAR_TRY(check_batch(batch, /*with_targets=*/true));
  HeadResult result;
  INVAR_TRY(run(kEvaluate, [&] { return evaluate_pass(batch, results, result); }));
  return LossSum{result.loss_sum, result.loss_count};
}

Status DecoderModel::logits(const MicroBatch& batch, float* out, const LayerHook& hook) {
  INVAR_TRY(check_batch(batch, /*with_targets=*/false));
  return run(kLogits, [&] { return logits_pass(batch, out, hook); });
}

Status DecoderModel::end_window() {
  if (!window_open_) {
    return Error(Code::kFailedPrecondition, "model.window_closed", "no accumulation window is open");
  }
  window_open_ = false;
  window_complete_ = true;
  return {};
}

Result<double> DecoderModel::gradient_norm_squared() {
  if (!window_complete_) {
    return Error(Code::kFailedPrecondition, "model.window_open", "no accumulation window is complete");
  }
  return store_->gradient_norm_squared();
}

Status DecoderModel::check_reached() const {
  if (!window_complete_) {
    return Error(Code::kFailedPrecondition, "model.window_open", "no accumulation window is complete");
  }
  return store_->check_reached();
}

}  // namespace invar
