#include "core/precision/ladder.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace invar {
namespace {

// A calm window must not turn ordinary noise into a spike: the deviation counts as at least this share of the mean.
constexpr double kLossFloor = 0.01;
constexpr double kGradNormFloor = 0.1;

void push(std::vector<double>* window, double value, int64_t limit) {
  window->push_back(value);
  if (static_cast<int64_t>(window->size()) > limit) window->erase(window->begin());
}

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
    case LadderState::kFinal: return "final";
  }
  return "?";
}

std::string_view ladder_cause_name(LadderCause cause) {
  switch (cause) {
    case LadderCause::kNone: return "";
    case LadderCause::kWarmupDone: return "warmup_done";
    case LadderCause::kAnomaly: return "anomaly";
    case LadderCause::kCooldownDone: return "cooldown_done";
    case LadderCause::kFinal: return "final";
  }
  return "";
}

PrecisionLadder::PrecisionLadder(const LadderOptions& options) : options_(options) {
  if (options.fixed || !recipe_uses_fp8(options.recipe)) {
    state_ = LadderState::kFixed;
  } else {
    state_ = options.warmup_steps > 0 ? LadderState::kWarmup : LadderState::kLow;
  }
}

Recipe PrecisionLadder::recipe() const {
  const bool target = state_ == LadderState::kFixed || state_ == LadderState::kLow;
  return target ? options_.recipe : Recipe::kBf16;
}

std::string PrecisionLadder::spike_of(std::string_view name, const std::vector<double>& window, double value,
                                      double floor) const {
  const double count = static_cast<double>(window.size());
  if (window.empty() || count < static_cast<double>(std::min(options_.min_samples, options_.window))) return {};
  double mean = 0, squares = 0;
  for (double v : window) mean += v;
  mean /= count;
  for (double v : window) squares += (v - mean) * (v - mean);
  const double deviation = std::max({std::sqrt(squares / count), floor * std::fabs(mean), 1e-12});
  const double z = (value - mean) / deviation;
  if (z <= options_.spike_z || value <= options_.spike_ratio * mean) return {};
  return cat(name, " ", value, " lies ", z, " deviations above the mean ", mean, " of the last ", window.size(),
             " steps");
}

std::string PrecisionLadder::anomaly_of(const LadderObservation& observation) const {
  if (!observation.finite || !std::isfinite(observation.loss) || !std::isfinite(observation.grad_norm)) {
    return "loss or gradient is not finite";
  }
  const std::string loss = spike_of("loss", loss_, observation.loss, kLossFloor);
  return loss.empty() ? spike_of("gradient norm", grad_norm_, observation.grad_norm, kGradNormFloor) : loss;
}

LadderDecision PrecisionLadder::observe(const LadderObservation& observation) {
  LadderDecision decision;
  const std::string anomaly = anomaly_of(observation);
  decision.anomaly = !anomaly.empty();
  const bool finite = observation.finite && std::isfinite(observation.loss) && std::isfinite(observation.grad_norm);
  // Outside FP8 there is nothing to leave: a new level is learned instead of being refused for ever.
  if (finite && (anomaly.empty() || state_ != LadderState::kLow)) {
    push(&loss_, observation.loss, options_.window);
    push(&grad_norm_, observation.grad_norm, options_.window);
  }
  ++steps_;
  ++steps_in_state_;
  const auto move_to = [&](LadderState next, LadderCause cause, std::string reason) {
    state_ = next;
    steps_in_state_ = 0;
    decision.cause = cause;
    decision.reason = std::move(reason);
  };
  const bool ends_soon =
      options_.final_steps > 0 && options_.total_steps > 0 && steps_ >= options_.total_steps - options_.final_steps;
  if (ends_soon && state_ != LadderState::kFixed) {
    if (state_ != LadderState::kFinal) {
      move_to(LadderState::kFinal, LadderCause::kFinal, cat("bf16 for the last ", options_.final_steps, " steps"));
    }
    return decision;
  }
  switch (state_) {
    case LadderState::kWarmup:
      if (steps_in_state_ >= options_.warmup_steps) {
        move_to(LadderState::kLow, LadderCause::kWarmupDone,
                cat("bf16 warm-up of ", options_.warmup_steps, " steps is done"));
      }
      break;
    case LadderState::kLow:
      if (anomaly.empty()) break;
      ++fallbacks_;
      if (fallbacks_ >= options_.max_fallbacks) {
        move_to(LadderState::kExhausted, LadderCause::kAnomaly,
                cat(anomaly, "; bf16 to the end after ", fallbacks_, " anomalies"));
      } else {
        move_to(LadderState::kCooldown, LadderCause::kAnomaly,
                cat(anomaly, "; bf16 for ", options_.cooldown_steps, " steps"));
      }
      break;
    case LadderState::kCooldown:
      if (steps_in_state_ >= options_.cooldown_steps) {
        move_to(LadderState::kLow, LadderCause::kCooldownDone,
                cat("cool-down of ", options_.cooldown_steps, " steps is done"));
      }
      break;
    case LadderState::kFixed:
    case LadderState::kFinal:
    case LadderState::kExhausted: break;
  }
  return decision;
}

std::string PrecisionLadder::save() const {
  const nlohmann::json json = {
      {"state", static_cast<int>(state_)}, {"steps", steps_}, {"steps_in_state", steps_in_state_},
      {"fallbacks", fallbacks_},           {"loss", loss_},   {"grad_norm", grad_norm_}};
  return json.dump();
}

Status PrecisionLadder::restore(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    const int state = json.at("state").get<int>();
    if (state < 0 || state > static_cast<int>(LadderState::kFinal)) {
      return bad_state(cat("state ", state, " is not one of 0 to ", static_cast<int>(LadderState::kFinal)));
    }
    const bool was_fixed = state == static_cast<int>(LadderState::kFixed);
    if (was_fixed != (options_.fixed || !recipe_uses_fp8(options_.recipe))) {
      return bad_state(cat("it belongs to a run ", was_fixed ? "without" : "with", " a ladder, this one is ",
                           was_fixed ? "with" : "without"));
    }
    auto loss = json.at("loss").get<std::vector<double>>();
    auto grad_norm = json.at("grad_norm").get<std::vector<double>>();
    if (loss.size() != grad_norm.size()) return bad_state("its two histories differ in length");
    const auto steps = json.at("steps").get<int64_t>();
    const auto steps_in_state = json.at("steps_in_state").get<int64_t>();
    const auto fallbacks = json.at("fallbacks").get<int64_t>();
    state_ = static_cast<LadderState>(state);
    steps_ = steps;
    steps_in_state_ = steps_in_state;
    fallbacks_ = fallbacks;
    loss_ = std::move(loss);
    grad_norm_ = std::move(grad_norm);
  } catch (const nlohmann::json::exception& error) {
    return bad_state(error.what());
  }
  return {};
}

}  // namespace invar
