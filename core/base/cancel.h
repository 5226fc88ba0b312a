// A sticky cancel flag. Any thread, and a signal handler, may set it; work checks it at its own boundaries.
// A flag with a parent is also set when the parent is: one call can be stopped without stopping its neighbours.
#pragma once

#include <atomic>

#include "core/base/status.h"

namespace invar {

class CancelFlag {
 public:
  CancelFlag() = default;
  // The parent, which may be null, outlives this flag.
  explicit CancelFlag(const CancelFlag* parent) : parent_(parent) {}

  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const {
    return cancelled_.load(std::memory_order_relaxed) || (parent_ != nullptr && parent_->cancelled());
  }

 private:
  std::atomic<bool> cancelled_{false};
  const CancelFlag* parent_ = nullptr;
};

// CANCELLED when `flag` is set; ok for null or unset.
inline Status check_cancel(const CancelFlag* flag) {
  if (flag != nullptr && flag->cancelled()) return Error(Code::kCancelled, "cancelled", "cancelled by the caller");
  return {};
}

}  // namespace invar
