// A model being trained: FP32 masters, optimizer and the accumulation window, without any data or schedule.
//
//   INVAR_ASSIGN(auto learner, Learner::create(std::move(model), options));
//   INVAR_TRY(learner->load(source));
//   INVAR_TRY(learner->begin_window(m));
//   for (each of the m micro-batches) INVAR_TRY(learner->forward_backward(batch).status());
//   INVAR_ASSIGN(StepOutcome outcome, learner->step(lr));
//
// The loss is the token mean over the whole window: the sum of losses over the sum of tokens of all its micro-batches.
// Invariant: a step whose loss or gradient norm is not finite changes neither weights, moments nor the step count; it
// is an outcome, not an error. Masters, moments and steps() are the whole state: working weights follow from masters.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/device/device.h"
#include "core/model/model.h"
#include "core/optim/adamw.h"

namespace invar {

struct LearnerOptions {
  AdamWOptions adamw;
  double clip_norm = 1.0;  // largest global gradient norm; 0: no clipping
};

struct StepOutcome {
  double loss = 0;       // token mean over the window
  int64_t tokens = 0;    // that carried loss
  double grad_norm = 0;  // of the mean gradient, before clipping
  double clip_factor = 1;
  double lr = 0;
  bool skipped = false;
  std::string first_bad;  // of a skipped step: the first parameter with a non-finite gradient, or "the loss"
};

class Learner {
 public:
  static Result<std::unique_ptr<Learner>> create(std::unique_ptr<Model> model, const LearnerOptions& options);

  // First weights. Masters keep the source's FP32 values, working weights are rounded from them.
  Status load(WeightSource& source);

  // Starts a window of `micro_batches`; an unfinished one is dropped. 0: as many as come before step(), which then
  // costs one more pass over the gradients for their norm.
  Status begin_window(int64_t micro_batches);
  Result<LossSum> forward_backward(const MicroBatch& batch);
  // Ends the window. "train.window_incomplete" when micro-batches are missing, "train.no_tokens" when none carried
  // loss.
  Result<StepOutcome> step(double lr);

  // Successful optimizer steps.
  int64_t steps() const { return optimizer_.steps(); }
  Model& model() const { return *model_; }
  int64_t parameter_count() const { return parameter_count_; }

  // The state of parameter `index` (of model().parameters()), FP32 [count] each.
  float* master(size_t index) const { return masters_of_[index]; }
  float* m(size_t index) const { return optimizer_.m(index); }
  float* v(size_t index) const { return optimizer_.v(index); }
  // After master(), m() and v() were written from outside: the working weights are made again.
  Status restored(int64_t steps);

 private:
  Learner() = default;
  Status make_working();
  Result<std::string> first_bad_gradient() const;

  std::unique_ptr<Model> model_;
  LearnerOptions options_;
  DeviceBuffer masters_;            // of parameters whose working weight is BF16
  std::vector<float*> masters_of_;  // by parameter: into masters_, or the working weight itself
  AdamW optimizer_;
  int64_t parameter_count_ = 0;

  static constexpr int64_t kClosed = -1;
  int64_t window_size_ = kClosed, window_done_ = 0;  // micro-batches; size 0: open-ended
  LossSum window_;
};

}  // namespace invar
