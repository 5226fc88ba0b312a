#include "core/nn/operation_profile.h"

#include <cstring>

namespace invar {

void OperationProfile::add(const char* name, double seconds) {
  for (Entry& entry : entries_) {
    if (entry.name != name && std::strcmp(entry.name, name) != 0) continue;
    entry.seconds += seconds;
    ++entry.calls;
    return;
  }
  entries_.push_back({name, seconds, 1});
}

double OperationProfile::total_seconds() const {
  double total = 0;
  for (const Entry& entry : entries_) total += entry.seconds;
  return total;
}

}  // namespace invar
