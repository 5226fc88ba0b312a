// The attention block: norm, fused query-key-value product, rope, causal attention, output product, residual.
//
// Grouped heads; packed sequences; by the family biases, norms of query and key heads, a window, a soft cap, a norm
// before the residual. Forward saves kAttentionNorm, kAttentionInvRms, kQkv, kAttention, kLogSumExp, where they exist
// kQueryKey, kHeadInvRms, kAttentionBranch, kAttentionBranchInvRms, and leaves the stream in kMiddle.
// Thread rule: as the context.
#pragma once

#include "core/nn/context.h"
#include "core/nn/norm.h"

namespace invar {

struct AttentionShape {
  int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  NormShape norm;
  RopeTable rope;
  float scale = 0;     // multiplies scores
  float soft_cap = 0;  // of scores; 0: none
  int64_t window = 0;  // keys that a query sees; 0: all

  int64_t query_size() const { return heads * head_dim; }
  int64_t kv_size() const { return kv_heads * head_dim; }
  int64_t qkv_size() const { return query_size() + 2 * kv_size(); }
};

// What a family does not have is -1.
struct AttentionWeights {
  WeightId norm = -1, qkv = -1, out = -1;
  WeightId qkv_bias = -1;
  WeightId query_norm = -1, key_norm = -1;  // both or none
  WeightId branch_norm = -1;
};

// Keys and values of one layer from earlier passes: [capacity, 2 * kv_size], keys left of values. The pass has one
// sequence, whose rows are appended behind the `length` that are there.
struct LayerCache {
  Matrix rows;
  int64_t length = 0;
  const int32_t* offsets = nullptr;  // [2], device memory: 0 and length + tokens
};

Status attention_forward(Context& ctx, const AttentionShape& shape, const AttentionWeights& weights, int64_t layer,
                         const LayerCache* cache = nullptr);
// residual_gradient and copy: of the stream after the block on entry, before it on return.
Status attention_backward(Context& ctx, const AttentionShape& shape, const AttentionWeights& weights, int64_t layer,
                          const Matrix& residual_gradient, const Matrix& copy);

}  // namespace invar
