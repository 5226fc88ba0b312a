// The level this process may use: what the processor has (core/numerics/cpu_features.h) and the kernel allows.
#pragma once

#include "core/device/cpu/kernels.h"

namespace invar::cpu {

// Found once. On an AMX machine the first call asks the operating system for permission to use tile data; a
// refusal gives kAvx512Bf16.
Level usable_level();

// "avx512_bf16"; and back, false for an unknown name.
const char* level_name(Level level);
bool level_from_name(const char* name, Level* level);

// Whether vdpbf16ps does more than FP32 FMA on widened operands here. Intel's cores start one 512-bit vdpbf16ps
// every second cycle and two FMAs in each: half the rate; AMD's since Zen 4 gain from it.
bool pair_products_are_fast();

}  // namespace invar::cpu
