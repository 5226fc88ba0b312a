// The gated MLP block: norm, fused gate-up product, f(gate) * up, down product, by the family a norm, residual.
// Shazeer 2020.
//
// Forward reads kMiddle, saves kMlpNorm, kMlpInvRms, kGateUp, with a branch norm kMlpBranch, kMlpBranchInvRms, and
// writes the stream into the next layer's kInput. The gated product is made again in the backward pass instead of being
// saved. Thread rule: as the context.
#pragma once

#include "core/nn/context.h"
#include "core/nn/norm.h"

namespace invar {

struct MlpShape {
  int64_t hidden = 0, intermediate = 0;
  NormShape norm;
  int32_t gate = INVAR_GATE_SILU;  // INVAR_GATE_*
};

struct MlpWeights {
  WeightId norm = -1, gate_up = -1, down = -1;
  WeightId branch_norm = -1;  // -1: none
};

// with_output false: makes only what is saved, for a recompute.
Status mlp_forward(Context& ctx, const MlpShape& shape, const MlpWeights& weights, int64_t layer, bool with_output);
// residual_gradient and copy: of the stream after the block on entry, before it on return.
Status mlp_backward(Context& ctx, const MlpShape& shape, const MlpWeights& weights, int64_t layer,
                    const Matrix& residual_gradient, const Matrix& copy);

}  // namespace invar
