#include "core/nn/attention.h"

#include <cmath>

#include "core/nn/linear.h"
#include "core/nn/norm.h"

namespace invar {
namespace {

// Rotates queries and keys, which lie side by side, in one call.
Status rotate(Context& ctx, const AttentionShape& shape, const Matrix& qkv, bool inverse) {
  invar_rope_args args{};
  args.dtype = qkv.device_dtype();
  args.inverse = inverse;
  args.tokens = qkv.rows;
  args.heads = shape.heads + shape.kv_heads;
  args.head_dim = shape.head_dim;
  args.ld = qkv.ld;
  args.x = qkv.data;
  args.cos = shape.rope.cos;
  args.sin = shape.rope.sin;
  args.positions = ctx.rows().positions;
  return ctx.run<&Device::rope>("rope", args);
}

invar_attention_args core_args(Context& ctx, const AttentionShape& shape, const Matrix& qkv, const Matrix& out,
                               float* log_sum_exp) {
  const Matrix k = qkv.columns(shape.query_size(), shape.kv_size());
  const Matrix v = qkv.columns(shape.query_size() + shape.kv_size(), shape.kv_size());
  invar_attention_args args{};
  args.dtype = qkv.device_dtype();
  args.sequences = ctx.rows().sequences;
  args.heads = shape.heads;
  args.kv_heads = shape.kv_heads;
  args.head_dim = shape.head_dim;
  args.q_offsets = ctx.rows().offsets;
  args.k_offsets = ctx.rows().offsets;
  args.q = qkv.data;
  args.k = k.data;
  args.v = v.data;
  args.out = out.data;
  args.ldq = args.ldk = args.ldv = qkv.ld;
  args.ldo = out.ld;
  args.lse = log_sum_exp;
  args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  return args;
}

Status append(Context& ctx, const AttentionShape& shape, const Matrix& qkv, const LayerCache& cache) {
  if (ctx.planning()) return {};
  const size_t bytes = static_cast<size_t>(bytes_of(qkv.dtype, 2 * shape.kv_size()));
  const Matrix kv = qkv.columns(shape.query_size(), 2 * shape.kv_size());
  for (int64_t row = 0; row < qkv.rows; ++row) {
    std::byte* to =
        static_cast<std::byte*>(cache.rows.data) + bytes_of(qkv.dtype, (cache.length + row) * cache.rows.ld);
    const std::byte* from = static_cast<const std::byte*>(kv.data) + bytes_of(qkv.dtype, row * kv.ld);
    INVAR_TRY(ctx.device().copy(to, from, bytes));
  }
  return {};
}

}  // namespace

Status attention_forward(Context& ctx, const AttentionShape& shape, const AttentionWeights& weights, int64_t layer,
                         const LayerCache* cache) {
  const int64_t tokens = ctx.rows().tokens;
  const DType act = ctx.activations();
  const Matrix input = ctx.saved(layer, Slot::kInput);
  INVAR_ASSIGN(const Matrix inv_rms, ctx.save(layer, Slot::kAttentionInvRms, DType::kF32, tokens, 1));
  INVAR_ASSIGN(const Matrix normed, ctx.save(layer, Slot::kAttentionNorm, act, tokens, shape.hidden));
  INVAR_TRY(norm_forward(ctx, weights.norm, shape.norm_eps, input, normed, inv_rms.f32()));

  INVAR_ASSIGN(const Matrix qkv, ctx.save(layer, Slot::kQkv, act, tokens, shape.qkv_size()));
  INVAR_TRY(linear_forward(ctx, weights.qkv, normed, qkv));
  INVAR_TRY(rotate(ctx, shape, qkv, /*inverse=*/false));

  INVAR_ASSIGN(const Matrix out, ctx.save(layer, Slot::kAttention, act, tokens, shape.query_size()));
  INVAR_ASSIGN(const Matrix lse, ctx.save(layer, Slot::kLogSumExp, DType::kF32, shape.heads, tokens));
  invar_attention_args args = core_args(ctx, shape, qkv, out, lse.f32());
  if (cache != nullptr) {
    INVAR_TRY(append(ctx, shape, qkv, *cache));
    args.k = cache->rows.data;
    args.v = cache->rows.columns(shape.kv_size(), shape.kv_size()).data;
    args.ldk = args.ldv = cache->rows.ld;
    args.k_offsets = cache->offsets;
  }
  INVAR_TRY(ctx.run<&Device::attention>("attention.forward", args));

  INVAR_ASSIGN(const Matrix middle, ctx.save(layer, Slot::kMiddle, DType::kF32, tokens, shape.hidden));
  return linear_forward(ctx, weights.out, out, middle, &input);
}

Status attention_backward(Context& ctx, const AttentionShape& shape, const AttentionWeights& weights, int64_t layer,
                          const Matrix& residual_gradient, const Matrix& copy) {
  const int64_t tokens = ctx.rows().tokens;
  const DType act = ctx.activations();
  INVAR_ASSIGN(Scratch d_qkv, ctx.scratch("d_qkv", act, tokens, shape.qkv_size()));
  {
    const Matrix out = ctx.saved(layer, Slot::kAttention);
    INVAR_ASSIGN(Scratch d_out, ctx.scratch("d_attention", act, tokens, shape.query_size()));
    INVAR_TRY(linear_data_gradient(ctx, weights.out, copy, d_out.matrix));
    INVAR_TRY(linear_weight_gradient(ctx, weights.out, copy, out));

    const Matrix qkv = ctx.saved(layer, Slot::kQkv);
    invar_attention_backward_args args{};
    args.forward = core_args(ctx, shape, qkv, out, ctx.saved(layer, Slot::kLogSumExp).f32());
    args.d_out = d_out.matrix.data;
    args.d_q = d_qkv.matrix.data;
    args.d_k = d_qkv.matrix.columns(shape.query_size(), shape.kv_size()).data;
    args.d_v = d_qkv.matrix.columns(shape.query_size() + shape.kv_size(), shape.kv_size()).data;
    INVAR_TRY(ctx.run<&Device::attention_backward>("attention.backward", args));
    ctx.drop(layer, Slot::kLogSumExp);
    ctx.drop(layer, Slot::kAttention);
    ctx.drop(layer, Slot::kQkv);
  }
  INVAR_TRY(rotate(ctx, shape, d_qkv.matrix, /*inverse=*/true));
  INVAR_TRY(linear_weight_gradient(ctx, weights.qkv, d_qkv.matrix, ctx.saved(layer, Slot::kAttentionNorm)));
  ctx.drop(layer, Slot::kAttentionNorm);
  INVAR_ASSIGN(Scratch d_normed, ctx.scratch("d_norm", act, tokens, shape.hidden));
  INVAR_TRY(linear_data_gradient(ctx, weights.qkv, d_qkv.matrix, d_normed.matrix));
  INVAR_TRY(norm_backward(ctx, weights.norm, d_normed.matrix, ctx.saved(layer, Slot::kInput),
                          ctx.saved(layer, Slot::kAttentionInvRms).f32(), residual_gradient, /*accumulate=*/true,
                          copy));
  ctx.drop(layer, Slot::kAttentionInvRms);
  ctx.drop(layer, Slot::kInput);
  return {};
}

}  // namespace invar
