// The gated MLP block: norm, fused gate-up product, silu(gate) * up, down product, residual. Shazeer 2020.
//
// Forward reads kMiddle, saves kMlpNorm, kMlpInvRms, kGateUp and writes the stream into the next layer's kInput. The
// gated product is made again in the backward pass instead of being saved. Thread rule: as the context.
#pragma once

#include "core/nn/context.h"

namespace invar {

struct MlpShape {
  int64_t hidden = 0, intermediate = 0;
  float norm_eps = 0;
};

struct MlpWeights {
  WeightId norm = -1, gate_up = -1, down = -1;
};

// with_output false: stops before the down product (a recompute needs only what is saved).
Status mlp_forward(Context& ctx, const MlpShape& shape, const MlpWeights& weights, int64_t layer, bool with_output);
// residual_gradient and copy: of the stream after the block on entry, before it on return.
Status mlp_backward(Context& ctx, const MlpShape& shape, const MlpWeights& weights, int64_t layer,
                    const Matrix& residual_gradient, const Matrix& copy);

}  // namespace invar
