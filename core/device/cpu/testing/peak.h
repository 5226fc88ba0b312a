// The multiply-add rate of registers alone, measured: what a product could reach at best.
#pragma once

#include "core/device/cpu/testing/test_context.h"

namespace invar::cpu {

// FP32 operations a second (a multiply-add is two) of all the context's threads at the widest vectors of this machine.
double fma_peak(TestContext& context);

}  // namespace invar::cpu
