// The functions of math.h behind plain pointers, so that a test compiled for no particular instruction set can
// call every level's.
#pragma once

#include <stdint.h>

namespace invar::cpu {

struct MathProbe {
  // y[i] = f(x[i]); count is a multiple of 16.
  void (*exp)(const float* x, float* y, int64_t count);
  void (*exp2_short)(const float* x, float* y, int64_t count);
  void (*sigmoid)(const float* x, float* y, int64_t count);
  void (*tanh)(const float* x, float* y, int64_t count);
};

// level: a CpuLevel number.
MathProbe math_probe(int level);

}  // namespace invar::cpu
