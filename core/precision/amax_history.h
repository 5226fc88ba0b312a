// Scales from the history of amax: delayed scaling, one slot an operand.
//
//   AmaxHistory history(slots, {.length = 1024, .format_max = 448});
//   history.stage(slot, amax);   // every use, every micro-batch: the maximum counts, not the last
//   history.update();            // once at the step boundary
//   x * history.scale(slot)      // in the next step
//
// Invariant: no non-finite amax enters the window (one infinity would freeze a scale for `length` steps). A slot
// that was not used in a step keeps its window and its scale. FP8_MAX / (amax * 2^margin), at most FLT_MAX.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace invar {

struct AmaxHistoryOptions {
  int64_t length = 1024;  // steps, the current one included; 1 uses the most recent
  int margin = 0;
  float format_max = 448;
};

class AmaxHistory {
 public:
  AmaxHistory(int64_t slots, const AmaxHistoryOptions& options);

  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  // False when amax is not finite: the data is broken, and nothing is recorded.
  bool stage(int64_t slot, float amax);
  void update();
  float scale(int64_t slot) const { return slots_[static_cast<size_t>(slot)].scale; }
  float staged(int64_t slot) const { return slots_[static_cast<size_t>(slot)].staged; }

  std::string save() const;
  // The number of slots must be the same.
  Status restore(std::string_view json);

 private:
  struct Slot {
    float staged = 0;
    float scale = 1;
    std::vector<float> window;  // oldest first
  };
  AmaxHistoryOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace invar
