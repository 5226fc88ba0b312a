#include "core/precision/amax_history.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <nlohmann/json.hpp>

namespace invar {
namespace {

Status bad_state(std::string_view what) {
  return Error(Code::kDataLoss, "precision.bad_amax_state", cat("saved amax history: ", what));
}

}  // namespace

AmaxHistory::AmaxHistory(int64_t slots, const AmaxHistoryOptions& options)
    : options_(options), slots_(static_cast<size_t>(slots)) {}

bool AmaxHistory::stage(int64_t slot, float amax) {
  if (!std::isfinite(amax)) return false;
  Slot& state = slots_[static_cast<size_t>(slot)];
  state.staged = std::max(state.staged, amax);
  return true;
}

void AmaxHistory::update() {
  for (Slot& slot : slots_) {
    if (slot.staged == 0) continue;
    slot.window.push_back(slot.staged);
    if (static_cast<int64_t>(slot.window.size()) > options_.length) slot.window.erase(slot.window.begin());
    const float amax = *std::max_element(slot.window.begin(), slot.window.end());
    slot.scale = std::min(std::ldexp(options_.format_max / amax, -options_.margin), FLT_MAX);
    slot.staged = 0;
  }
}

std::string AmaxHistory::save() const {
  nlohmann::json json = nlohmann::json::array();
  for (const Slot& slot : slots_) {
    json.push_back({{"staged", slot.staged}, {"scale", slot.scale}, {"window", slot.window}});
  }
  return json.dump();
}

Status AmaxHistory::restore(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (!json.is_array() || json.size() != slots_.size()) {
      return bad_state(cat("it holds ", json.size(), " slots, this model has ", slots_.size()));
    }
    std::vector<Slot> slots;
    for (const auto& entry : json) {
      Slot slot{entry.at("staged").get<float>(), entry.at("scale").get<float>(),
                entry.at("window").get<std::vector<float>>()};
      if (static_cast<int64_t>(slot.window.size()) > options_.length) {
        slot.window.erase(slot.window.begin(), slot.window.end() - options_.length);
      }
      slots.push_back(std::move(slot));
    }
    slots_ = std::move(slots);
  } catch (const nlohmann::json::exception& error) {
    return bad_state(error.what());
  }
  return {};
}

}  // namespace invar
