#include "core/precision/ladder.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace invar {
namespace {

// A calm window must not turn ordinary noise into a spike: the deviation counts as at least this share of the mean.
constexpr double kLossFloor = 0.01;
constexpr double kGradNormFloor = 0.1;

Status bad_state(std::string_view what) {
  return Error(Code::kDataLoss, "precision.bad_ladder_state", cat("saved ladder state: ", what));
}

}  // namespace

std::string_view ladder_state_name(LadderState state) {
  switch (state) {
    case LadderState::kFixed: return "fixed";
    case LadderState::kWarmup: return "warmup";
    case LadderState::kLow: return "fp8";
    case LadderState::kCooldown: return "cooldown";
    case LadderState::kExhausted: return "exhausted";
  }
  return "?";
}

void PrecisionLadder::Window::push(double value, int64_t limit) {
  values.push_back(value);
  if (static_cast<int64_t>(values.size()) > limit) values.erase(values.begin());
}

PrecisionLadder::PrecisionLadder(const LadderOptions& options) : options_(options) {
  if (!recipe_uses_fp8(options.recipe)) {
    state_ = LadderState::kFixed;
  } else {
    state_ = options.warmup_steps > 0 ? LadderState::kWarmup : LadderState::kLow;
  }
}

Recipe PrecisionLadder::recipe() const {
  const bool target = state_ == LadderState::kFixed || state_ == LadderState::kLow;
  return target ? options_.recipe : Recipe::kBf16;
}

double PrecisionLadder::z_score(const Window& window, double value, double floor) {
  const double count = static_cast<double>(window.values.size());
  double mean = 0;
  for (double v : window.values) mean += v;
  mean /= count;
  double squares = 0;
  for (double v : window.values) squares += (v - mean) * (v - mean);
  const double deviation = std::max({std::sqrt(squares / count), floor * std::fabs(mean), 1e-12});
  return (value - mean) / deviation;
}

std::string PrecisionLadder::anomaly_of(const LadderObservation& observation) const {
  if (!observation.finite || !std::isfinite(observation.loss) || !std::isfinite(observation.grad_norm)) {
    return "loss or gradient is not finite";
  }
  if (static_cast<int64_t>(loss_.values.size()) < options_.min_samples) return {};
  const double loss_z = z_score(loss_, observation.loss, kLossFloor);
  if (options_.loss_z > 0 && loss_z > options_.loss_z) {
    return cat("loss ", observation.loss, " lies ", loss_z, " deviations above the mean of the last ",
               loss_.values.size(), " steps (limit ", options_.loss_z, ")");
  }
  const double norm_z = z_score(grad_norm_, observation.grad_norm, kGradNormFloor);
  if (options_.grad_norm_z > 0 && norm_z > options_.grad_norm_z) {
    return cat("gradient norm ", observation.grad_norm, " lies ", norm_z, " deviations above the mean of the last ",
               grad_norm_.values.size(), " steps (limit ", options_.grad_norm_z, ")");
  }
  return {};
}

LadderDecision PrecisionLadder::observe(const LadderObservation& observation) {
  LadderDecision decision;
  const std::string anomaly = anomaly_of(observation);
  decision.anomaly = !anomaly.empty();
  const bool finite = observation.finite && std::isfinite(observation.loss) && std::isfinite(observation.grad_norm);
  // Outside FP8 there is nothing to leave: a new level is learned instead of being refused for ever.
  if (finite && (anomaly.empty() || state_ != LadderState::kLow)) {
    loss_.push(observation.loss, options_.window);
    grad_norm_.push(observation.grad_norm, options_.window);
  }
  ++steps_in_state_;
  const auto move_to = [&](LadderState next, std::string reason) {
    state_ = next;
    steps_in_state_ = 0;
    decision.changed = true;
    decision.reason = std::move(reason);
  };
  switch (state_) {
    case LadderState::kWarmup:
      if (steps_in_state_ >= options_.warmup_steps) {
        move_to(LadderState::kLow, cat("bf16 warm-up of ", options_.warmup_steps, " steps is done"));
      }
      break;
    case LadderState::kLow:
      if (anomaly.empty()) break;
      if (retries_ >= options_.max_retries) {
        move_to(LadderState::kExhausted, cat(anomaly, "; bf16 to the end after ", retries_, " retries"));
      } else {
        ++retries_;
        move_to(LadderState::kCooldown, cat(anomaly, "; bf16 for ", options_.cooldown_steps, " steps"));
      }
      break;
    case LadderState::kCooldown:
      if (steps_in_state_ >= options_.cooldown_steps) {
        move_to(LadderState::kLow, cat("cool-down of ", options_.cooldown_steps, " steps is done, retry ", retries_,
                                       " of ", options_.max_retries));
      }
      break;
    case LadderState::kFixed:
    case LadderState::kExhausted: break;
  }
  return decision;
}

std::string PrecisionLadder::save() const {
  const nlohmann::json json = {{"state", static_cast<int>(state_)},
                               {"steps_in_state", steps_in_state_},
                               {"retries", retries_},
                               {"loss", loss_.values},
                               {"grad_norm", grad_norm_.values}};
  return json.dump();
}

Status PrecisionLadder::restore(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    const int state = json.at("state").get<int>();
    if (state < 0 || state > static_cast<int>(LadderState::kExhausted)) {
      return bad_state(cat("state ", state, " is not one of 0 to ", static_cast<int>(LadderState::kExhausted)));
    }
    const bool was_fixed = state == static_cast<int>(LadderState::kFixed);
    if (was_fixed == recipe_uses_fp8(options_.recipe)) {
      return bad_state(cat("it belongs to a run ", was_fixed ? "without" : "with", " an fp8 recipe, this run's is ",
                           recipe_name(options_.recipe)));
    }
    Window loss{json.at("loss").get<std::vector<double>>()};
    Window grad_norm{json.at("grad_norm").get<std::vector<double>>()};
    if (loss.values.size() != grad_norm.values.size()) return bad_state("its two histories differ in length");
    const auto steps = json.at("steps_in_state").get<int64_t>();
    const auto retries = json.at("retries").get<int64_t>();
    state_ = static_cast<LadderState>(state);
    steps_in_state_ = steps;
    retries_ = retries;
    loss_ = std::move(loss);
    grad_norm_ = std::move(grad_norm);
  } catch (const nlohmann::json::exception& error) {
    return bad_state(error.what());
  }
  return {};
}

}  // namespace invar
