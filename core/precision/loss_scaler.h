// The loss scale of FP16 training: grows while gradients are finite, backs off when they are not.
//
//   LossScaler scaler({});
//   const double scale = scaler.scale();             // captured once for the whole accumulation window
//   ... backward of scale * loss, m times; unscale by the same `scale` ...
//   auto outcome = scaler.update(found_non_finite);  // last, after the gradients were unscaled
//
// BF16 and FP8 need none: `dynamic = false, initial = 1` never moves. One scale a window is the caller's rule;
// the scaler changes only in update(). Powers of two keep scaling exact.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace invar {

struct LossScalerOptions {
  bool dynamic = true;
  double initial = 65536;
  double growth = 2, backoff = 0.5;
  int64_t growth_interval = 2000;  // good steps before the scale grows
  int64_t hysteresis = 1;          // overflows it takes to back off; refilled when the scale grows
  double minimum = 1, maximum = 16777216;
};

enum class ScalerOutcome : int32_t {
  kKept = 0,
  kGrew = 1,
  kBackedOff = 2,
  kTolerated = 3,  // an overflow that spent hysteresis only
  kAtMinimum = 4,  // an overflow with nowhere left to go: the cause is not the scale
};

class LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& options)
      : options_(options), scale_(options.initial), credits_(options.hysteresis) {}

  double scale() const { return scale_; }
  // Tells whether the window that used scale() ended with a non-finite gradient.
  ScalerOutcome update(bool found_non_finite);

  std::string save() const;
  Status restore(std::string_view json);

 private:
  LossScalerOptions options_;
  double scale_;
  int64_t good_steps_ = 0;
  int64_t credits_;
};

}  // namespace invar
