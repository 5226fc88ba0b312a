#include "core/device/cpu/simd/math.h"
#include "core/device/cpu/simd/math_probe.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

MathProbe math_probe_level();

MathProbe math_probe_level() {
  MathProbe probe;
  probe.exp = [](const float* x, float* y, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) store(y + i, exp(load(x + i)));
  };
  probe.exp2_short = [](const float* x, float* y, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) store(y + i, exp2_short(load(x + i)));
  };
  probe.sigmoid = [](const float* x, float* y, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) store(y + i, sigmoid(load(x + i)));
  };
  probe.tanh = [](const float* x, float* y, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) store(y + i, tanh(load(x + i)));
  };
  return probe;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
