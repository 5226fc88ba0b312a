#include "core/device/cpu/simd/math_probe.h"

namespace invar::cpu {

namespace portable {
MathProbe math_probe_level();
}
namespace avx2 {
MathProbe math_probe_level();
}
namespace avx512 {
MathProbe math_probe_level();
}

MathProbe math_probe(int level) {
#if defined(__x86_64__)
  if (level >= 2) return avx512::math_probe_level();
  if (level == 1) return avx2::math_probe_level();
#endif
  static_cast<void>(level);
  return portable::math_probe_level();
}

}  // namespace invar::cpu
