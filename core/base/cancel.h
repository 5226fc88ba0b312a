// A sticky cancel flag. Any thread, and a signal handler, may set it; work checks it at its own boundaries.
#pragma once

#include <atomic>

#include "core/base/status.h"

namespace invar {

class CancelFlag {
 public:
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

// CANCELLED when `flag` is set; ok for null or unset.
inline Status check_cancel(const CancelFlag* flag) {
  if (flag != nullptr && flag->cancelled()) return Error(Code::kCancelled, "cancelled", "cancelled by the caller");
  return {};
}

}  // namespace invar
