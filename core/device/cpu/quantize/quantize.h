// Quantising to E4M3FN and E5M2 with the codes, the scales and the decoded BF16 copy in one pass over a unit that is in
// cache (a row, a row of blocks); the whole tensor's scale takes a pass of its own first.
//
// Invariant: bit-equal to core/numerics/scale.h: scale_inv = amax / max, x / scale_inv in FP32, nearest even,
// saturating. A NaN or infinity in a unit makes its scale_inv and amax non-finite: the caller sees it, nothing is
// hidden. Other formats, and anything that is not act, go to the scalar code.
#pragma once

#include "core/device/cpu/kernels.h"

namespace invar::cpu {

// Overwrites quantize with the best version at or below `level`.
void fill_quantize(Kernels& kernels, Level level);

}  // namespace invar::cpu

#if defined(INVAR_LEVEL_NAME)
namespace invar::cpu::INVAR_LEVEL_NAME {

int32_t quantize(Context& context, const invar_quantize_args& args);

}  // namespace invar::cpu::INVAR_LEVEL_NAME
#endif
