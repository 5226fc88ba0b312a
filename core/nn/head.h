// The output head: final norm, projection on the vocabulary, cross-entropy in chunks, or the logits themselves.
// Thread rule: as the context.
#pragma once

#include "core/nn/context.h"
#include "core/nn/norm.h"

namespace invar {

struct HeadWeights {
  WeightId norm = -1, head = -1;
};

struct HeadShape {
  NormShape norm;
  float soft_cap = 0;  // of logits; 0: none
};

struct HeadResult {
  double loss_sum = 0;
  int64_t loss_count = 0;
};

struct HeadOutputs {
  float* token_loss = nullptr;  // [tokens] or null
  int32_t* top1 = nullptr;      // [tokens] or null
};

// input: the residual stream, FP32 [tokens, hidden]. targets: I32 [tokens], device memory.
// With gradients: residual_gradient (FP32) and copy receive the gradient of the stream; both null views otherwise.
Status head_loss(Context& ctx, const HeadWeights& weights, const HeadShape& shape, const Matrix& input,
                 const int32_t* targets, const HeadOutputs& outputs, float grad_scale, const Matrix& residual_gradient,
                 const Matrix& copy, HeadResult& result);
// logits: FP32 [rows of input, vocab].
Status head_logits(Context& ctx, const HeadWeights& weights, const HeadShape& shape, const Matrix& input,
                   const Matrix& logits);

}  // namespace invar
