#include "core/train/learner.h"

#include <algorithm>
#include <cmath>

namespace invar {

Result<std::unique_ptr<Learner>> Learner::create(std::unique_ptr<Model> model, const LearnerOptions& options) {
  auto learner = std::unique_ptr<Learner>(new Learner);
  Device& device = model->device();
  constexpr int64_t kAlign = 16;  // elements: 64 bytes
  int64_t elements = 0;
  for (const Parameter& parameter : model->parameters()) {
    learner->parameter_count_ += parameter.count;
    if (parameter.dtype != DType::kF32) elements += (parameter.count + kAlign - 1) / kAlign * kAlign;
  }
  INVAR_ASSIGN(learner->masters_, device.allocate(static_cast<size_t>(std::max<int64_t>(elements, 1)) * sizeof(float)));
  std::vector<OptimizedParameter> optimized;
  int64_t offset = 0;
  for (const Parameter& parameter : model->parameters()) {
    const bool own_master = parameter.dtype == DType::kF32;
    float* master = own_master ? static_cast<float*>(parameter.working) : learner->masters_.as<float>() + offset;
    if (!own_master) offset += (parameter.count + kAlign - 1) / kAlign * kAlign;
    learner->masters_of_.push_back(master);
    optimized.push_back({.name = parameter.spec.name,
                         .count = parameter.count,
                         .master = master,
                         .gradient = parameter.gradient,
                         .working = own_master ? nullptr : parameter.working,
                         .decays = parameter.spec.decays()});
  }
  INVAR_ASSIGN(learner->optimizer_, AdamW::create(device.shared_from_this(), std::move(optimized), options.adamw));
  learner->model_ = std::move(model);
  learner->options_ = options;
  return learner;
}

Status Learner::load(WeightSource& source) {
  std::vector<float*> masters = masters_of_;
  const auto parameters = model_->parameters();
  for (size_t i = 0; i < masters.size(); ++i) {
    if (parameters[i].dtype == DType::kF32) masters[i] = nullptr;
  }
  INVAR_TRY(model_->load(source, masters));
  return model_->weights_changed();
}

Status Learner::begin_window(int64_t micro_batches) {
  if (micro_batches < 0) {
    return Error(Code::kInvalidArgument, "train.bad_window", cat(micro_batches, " micro-batches in a window"));
  }
  window_size_ = micro_batches;
  window_done_ = 0;
  window_ = {};
  return {};
}

Result<LossSum> Learner::forward_backward(const MicroBatch& batch) {
  if (window_size_ == kClosed || (window_size_ > 0 && window_done_ == window_size_)) {
    return Error(Code::kFailedPrecondition, "train.window_closed",
                 window_size_ == kClosed ? std::string("no window is open: begin one first")
                                         : cat("the window of ", window_size_, " micro-batches is complete: step"));
  }
  const WindowPlace place{.first = window_done_ == 0, .last = window_done_ == window_size_ - 1};
  INVAR_ASSIGN(const LossSum loss, model_->forward_backward(batch, place));
  ++window_done_;
  window_.sum += loss.sum;
  window_.count += loss.count;
  return loss;
}

Result<std::string> Learner::first_bad_gradient() const {
  for (const Parameter& parameter : model_->parameters()) {
    INVAR_ASSIGN(const bool finite, model_->device().all_finite(parameter.gradient, parameter.count));
    if (!finite) return parameter.spec.name;
  }
  return std::string("the loss");
}

Result<StepOutcome> Learner::step(double lr) {
  if (window_size_ == kClosed) {
    return Error(Code::kFailedPrecondition, "train.window_closed", "no window is open: begin one first");
  }
  if (window_done_ < std::max<int64_t>(window_size_, 1)) {
    return Error(
        Code::kFailedPrecondition, "train.window_incomplete",
        cat("the window has ", window_done_, " of its ", std::max<int64_t>(window_size_, 1), " micro-batches"));
  }
  if (window_size_ == 0) INVAR_TRY(model_->end_window());
  window_size_ = kClosed;
  if (window_.count == 0) {
    return Error(Code::kInvalidArgument, "train.no_tokens",
                 "no token of the window carries a loss: every target is masked");
  }
  StepOutcome outcome;
  const double tokens = static_cast<double>(window_.count);
  outcome.loss = window_.sum / tokens;
  outcome.tokens = window_.count;
  outcome.lr = lr;
  INVAR_ASSIGN(const double norm_squared, model_->gradient_norm_squared());
  outcome.grad_norm = std::sqrt(norm_squared) / tokens;
  if (!std::isfinite(outcome.loss) || !std::isfinite(outcome.grad_norm)) {
    outcome.skipped = true;
    outcome.clip_factor = 0;
    INVAR_ASSIGN(outcome.first_bad, first_bad_gradient());
    return outcome;
  }
  outcome.clip_factor = clip_factor(outcome.grad_norm, options_.clip_norm);
  INVAR_TRY(optimizer_.step(lr, outcome.clip_factor / tokens));
  INVAR_TRY(model_->weights_changed());
  return outcome;
}

Status Learner::make_working() {
  const auto parameters = model_->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (parameter.dtype == DType::kF32) continue;
    INVAR_TRY(model_->device().cast(parameter.working, parameter.dtype, masters_of_[i], DType::kF32, parameter.count));
  }
  return model_->weights_changed();
}

Status Learner::restored(int64_t steps) {
  optimizer_.set_steps(steps);
  window_size_ = kClosed;
  return make_working();
}

}  // namespace invar
