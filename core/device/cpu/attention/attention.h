// Attention without the full score matrix (Dao et al. 2022): tiles of queries against tiles of keys, softmax made
// online, everything between the stored operands in FP32.
//
// Invariant: work is cut by (sequence, head, fixed block of tokens) and partial sums are added in a fixed order, so the
// number of threads never changes a bit. Tiles that no query of a block may see are skipped.
// Semantics: core/device/backend_abi.h; the scalar version stands in core/device/cpu/reference.
#pragma once

#include "core/device/cpu/kernels.h"

namespace invar::cpu {

// Overwrites attention and attention_backward with the best version at or below `level`.
void fill_attention(Kernels& kernels, Level level);

}  // namespace invar::cpu

#if defined(INVAR_LEVEL_NAME)
namespace invar::cpu::INVAR_LEVEL_NAME {

int32_t attention(Context& context, const invar_attention_args& args);
int32_t attention_backward(Context& context, const invar_attention_backward_args& args);
// For a few queries a sequence and a long cache: reads keys and values once, as they are stored.
int32_t attention_decode(Context& context, const invar_attention_args& args);

}  // namespace invar::cpu::INVAR_LEVEL_NAME
#endif
