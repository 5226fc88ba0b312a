// The precision ladder: BF16 warm-up, then the FP8 recipe, back to BF16 on an anomaly, and up again.
//
//   PrecisionLadder ladder({.recipe = Recipe::kFp8Block, .warmup_steps = 100});
//   while (training) {
//     run the step in ladder.recipe();
//     auto decision = ladder.observe({.finite = true, .loss = loss, .grad_norm = norm});
//     if (decision.changed()) log(decision.reason);
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

// A step is anomalous when its loss or gradient norm is not finite, or lies both `spike_z` deviations and
// `spike_ratio` times above the mean of the last `window` steps.
struct LadderOptions {
  Recipe recipe = Recipe::kBf16;  // the target; a recipe without FP8 stays in force for the whole run
  bool fixed = false;             // no ladder: the target for the whole run, whatever happens
  int64_t warmup_steps = 0;       // steps in BF16 before the target
  int64_t window = 64;            // observations that mean and deviation are taken over
  int64_t min_samples = 16;       // below this many observations (or `window`, if less) no spike is judged
  double spike_z = 6;
  double spike_ratio = 1.1;
  int64_t cooldown_steps = 100;  // steps in BF16 after leaving FP8
  int64_t max_fallbacks = 3;     // anomalies after which the run stays in BF16
  int64_t final_steps = 0;       // steps in BF16 at the end of a run of total_steps
  int64_t total_steps = 0;       // 0: unknown, no final steps
};

enum class LadderState : int32_t { kFixed = 0, kWarmup = 1, kLow = 2, kCooldown = 3, kExhausted = 4, kFinal = 5 };
std::string_view ladder_state_name(LadderState state);

struct LadderObservation {
  bool finite = true;  // loss and every gradient
  double loss = 0;
  double grad_norm = 0;
};

enum class LadderCause : int32_t { kNone = 0, kWarmupDone, kAnomaly, kCooldownDone, kFinal };
std::string_view ladder_cause_name(LadderCause cause);  // "warmup_done", "anomaly", ...; empty for kNone

struct LadderDecision {
  LadderCause cause = LadderCause::kNone;  // not kNone: the state changed
  bool anomaly = false;
  std::string reason;  // for people: "loss 7.1 lies 9.3 deviations above ..."
  bool changed() const { return cause != LadderCause::kNone; }
};

class PrecisionLadder {
 public:
  explicit PrecisionLadder(const LadderOptions& options);

  // The recipe of the next step.
  Recipe recipe() const;
  LadderState state() const { return state_; }
  int64_t fallbacks() const { return fallbacks_; }

  // Tells what the step that just ran gave. Skipped steps are observed too, with finite = false.
  LadderDecision observe(const LadderObservation& observation);

  // The whole state as JSON text; restore() refuses text that is not one of ours. Options are not part of it.
  std::string save() const;
  Status restore(std::string_view json);

 private:
  std::string anomaly_of(const LadderObservation& observation) const;  // empty: none
  // Empty when `value` is no spike over `window`; the deviation counts as at least floor * |mean|.
  std::string spike_of(std::string_view name, const std::vector<double>& window, double value, double floor) const;

  LadderOptions options_;
  LadderState state_;
  int64_t steps_ = 0;  // observed
  int64_t steps_in_state_ = 0;
  int64_t fallbacks_ = 0;
  std::vector<double> loss_, grad_norm_;  // oldest first, at most options_.window
};

}  // namespace invar
