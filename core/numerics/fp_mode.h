// Sets the floating-point mode that the numerics rely on for a scope, and restores the host's: masked
// exceptions, nearest rounding, no flush-to-zero. A host built with -ffast-math runs with subnormals off.
//
// Invariant: the host's control word, its sticky flags included, is the same afterwards. Costs a few
// cycles when nothing has to change. Thread rule: one thread, on its stack.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace invar {

#if defined(__x86_64__)

class FpModeScope {
 public:
  FpModeScope() : saved_(_mm_getcsr()) {
    if (changed()) _mm_setcsr(kWanted);
  }
  ~FpModeScope() {
    if (changed()) _mm_setcsr(saved_);
  }
  FpModeScope(const FpModeScope&) = delete;
  FpModeScope& operator=(const FpModeScope&) = delete;

 private:
  static constexpr uint32_t kWanted = 0x1F80, kSticky = 0x3F;
  bool changed() const { return (saved_ & ~kSticky) != kWanted; }
  const uint32_t saved_;
};

#else

class FpModeScope {
 public:
  FpModeScope() {}
  ~FpModeScope() {}
};

#endif

}  // namespace invar
