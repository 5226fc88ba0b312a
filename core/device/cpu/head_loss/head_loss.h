// The output head with cross-entropy, see invar_head_loss_args.
//
// A chunk of tokens at a time: logits = x weight^T into a bounded scratch, softmax in place, then d_x and d_weight
// as products of what the softmax left there. A chunk holds as many tokens as make kChunkBytes of logits: small
// enough to be no burden, large enough that reading the weight and d_weight for every chunk costs little.
//
// Invariant: chunks depend on tokens and vocabulary alone, so that results do not depend on the number of threads.
#pragma once

#include "core/device/cpu/kernels.h"
#include "core/device/cpu/matmul/engine.h"

namespace invar::cpu {

// With an engine of the caller's choice; packed weights must come from the same one.
int32_t head_loss_with(const MatmulEngine& engine, Context& context, const invar_head_loss_args& args);

// The most tokens in a chunk; a call is cut into equal chunks.
int64_t head_loss_chunk(int64_t vocab);

void fill_head_loss(Kernels& kernels);

}  // namespace invar::cpu
