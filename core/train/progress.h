// What a run remembers beside weights and moments: counters, losses for its report, and the recipes it ran in.
// Saved in every checkpoint as JSON. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/precision/recipe.h"
#include "core/text/batch_source.h"

namespace invar {

// Consecutive steps in one recipe; steps count from 1.
struct RecipeSpanState {
  Recipe recipe = Recipe::kBf16;
  int64_t first_step = 1, last_step = 0;
  std::string reason;
};

struct Progress {
  int64_t steps = 0;  // successful optimizer steps
  int64_t total_tokens = 0;
  int64_t total_skipped = 0, skipped_in_a_row = 0;
  double seconds = 0;  // spent in steps, over all parts of an interrupted run
  std::optional<double> first_loss, best_eval_loss;
  std::deque<double> recent_losses;  // of the last kRecent steps
  std::vector<RecipeSpanState> spans;
  DataPosition data;
  uint64_t data_digest = 0;
  std::string ladder;  // PrecisionLadder::save(); kept beside the text of save()

  static constexpr size_t kRecent = 20;
  void add_loss(double loss);
  double tail_loss() const;  // mean of recent_losses

  std::string save() const;
  // "checkpoint.bad_progress" when the text is not one of ours.
  static Result<Progress> restore(std::string_view json);
};

}  // namespace invar
