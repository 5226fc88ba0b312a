#include "core/precision/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace invar {

ScalerOutcome LossScaler::update(bool found_non_finite) {
  if (!options_.dynamic) return found_non_finite ? ScalerOutcome::kAtMinimum : ScalerOutcome::kKept;
  if (found_non_finite) {
    good_steps_ = 0;
    if (credits_ > 1) {
      --credits_;
      return ScalerOutcome::kTolerated;
    }
    if (scale_ <= options_.minimum) return ScalerOutcome::kAtMinimum;
    scale_ = std::max(scale_ * options_.backoff, options_.minimum);
    return ScalerOutcome::kBackedOff;
  }
  if (++good_steps_ < options_.growth_interval) return ScalerOutcome::kKept;
  good_steps_ = 0;
  credits_ = options_.hysteresis;
  const double grown = std::min(scale_ * options_.growth, options_.maximum);
  if (grown == scale_) return ScalerOutcome::kKept;
  scale_ = grown;
  return ScalerOutcome::kGrew;
}

std::string LossScaler::save() const {
  return nlohmann::json({{"scale", scale_}, {"good_steps", good_steps_}, {"credits", credits_}}).dump();
}

Status LossScaler::restore(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    const auto scale = json.at("scale").get<double>();
    const auto good_steps = json.at("good_steps").get<int64_t>();
    const auto credits = json.at("credits").get<int64_t>();
    if (!(scale > 0) || !std::isfinite(scale) || good_steps < 0) {
      return Error(Code::kDataLoss, "precision.bad_scaler_state",
                   cat("saved loss scaler state: scale ", scale, " after ", good_steps, " good steps is not possible"));
    }
    scale_ = scale;
    good_steps_ = good_steps;
    credits_ = credits;
  } catch (const nlohmann::json::exception& error) {
    return Error(Code::kDataLoss, "precision.bad_scaler_state", cat("saved loss scaler state: ", error.what()));
  }
  return {};
}

}  // namespace invar
