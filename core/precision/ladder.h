// The precision ladder: BF16 warm-up, then the FP8 recipe, back to BF16 on an anomaly, and up again.
//
//   PrecisionLadder ladder({.recipe = Recipe::kFp8Block, .warmup_steps = 100});
//   while (training) {
//     run the step in ladder.recipe();
//     auto decision = ladder.observe({.finite = true, .loss = loss, .grad_norm = norm});
//     if (decision.changed) log(decision.reason);
//   }
//
// Fed with one observation a step, it never looks at anything else: the same observations give the same
// decisions. An observation judged anomalous does not enter the statistics it was judged by.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/precision/recipe.h"

namespace invar {

struct LadderOptions {
  Recipe recipe = Recipe::kBf16;  // the target; a recipe without FP8 stays in force for the whole run
  int64_t warmup_steps = 0;       // steps in BF16 before the target
  int64_t window = 64;            // observations that mean and deviation are taken over
  int64_t min_samples = 16;       // below this many observations no z-score is judged
  double loss_z = 6;              // leave FP8 when the loss lies this many deviations above the mean; 0: never
  double grad_norm_z = 8;         // the same for the gradient norm
  int64_t cooldown_steps = 50;    // steps in BF16 after leaving FP8
  int64_t max_retries = 3;        // returns to FP8 after an anomaly; then BF16 to the end
};

enum class LadderState : int32_t { kFixed = 0, kWarmup = 1, kLow = 2, kCooldown = 3, kExhausted = 4 };
std::string_view ladder_state_name(LadderState state);

struct LadderObservation {
  bool finite = true;  // loss and every gradient
  double loss = 0;
  double grad_norm = 0;
};

struct LadderDecision {
  bool changed = false;
  bool anomaly = false;
  std::string reason;  // why it changed: "warm-up of 100 steps done", "loss 7.1 is 9.3 deviations above ..."
};

class PrecisionLadder {
 public:
  explicit PrecisionLadder(const LadderOptions& options);

  // The recipe of the next step.
  Recipe recipe() const;
  LadderState state() const { return state_; }
  int64_t retries() const { return retries_; }

  // Tells what the step that just ran gave. Skipped steps are observed too, with finite = false.
  LadderDecision observe(const LadderObservation& observation);

  // The whole state as JSON text; restore() refuses text that is not one of ours. Options are not part of it.
  std::string save() const;
  Status restore(std::string_view json);

 private:
  struct Window {
    std::vector<double> values;  // oldest first, at most options.window
    void push(double value, int64_t limit);
  };
  // How many deviations `value` lies above the window's mean; the deviation is at least floor * |mean|.
  static double z_score(const Window& window, double value, double floor);
  std::string anomaly_of(const LadderObservation& observation) const;  // empty: none

  LadderOptions options_;
  LadderState state_;
  int64_t steps_in_state_ = 0;
  int64_t retries_ = 0;
  Window loss_, grad_norm_;
};

}  // namespace invar
