#include "core/nn/attention.h"

#include "core/nn/linear.h"

namespace invar {
namespace {

// Queries and keys side by side, and values: views of one matrix, or of two where heads are normalised.
struct Heads {
  Matrix query_key, value;

  static Heads of(const AttentionShape& shape, const Matrix& qkv) {
    const int64_t queries_keys = shape.query_size() + shape.kv_size();
    return {qkv.columns(0, queries_keys), qkv.columns(queries_keys, shape.kv_size())};
  }
  Matrix query(const AttentionShape& shape) const { return query_key.columns(0, shape.query_size()); }
  Matrix key(const AttentionShape& shape) const { return query_key.columns(shape.query_size(), shape.kv_size()); }
};

// Rotates queries and keys, which lie side by side, in one call.
Status rotate(Context& ctx, const AttentionShape& shape, const Matrix& query_key, bool inverse) {
  invar_rope_args args{};
  args.dtype = query_key.device_dtype();
  args.inverse = inverse;
  args.tokens = query_key.rows;
  args.heads = shape.heads + shape.kv_heads;
  args.head_dim = shape.head_dim;
  args.ld = query_key.ld;
  args.x = query_key.data;
  args.cos = shape.rope.cos;
  args.sin = shape.rope.sin;
  args.positions = ctx.rows().positions;
  return ctx.run<&Device::rope>("rope", args);
}

invar_attention_args core_args(Context& ctx, const AttentionShape& shape, const Heads& heads, const Matrix& out,
                               float* log_sum_exp) {
  invar_attention_args args{};
  args.dtype = out.device_dtype();
  args.sequences = ctx.rows().sequences;
  args.heads = shape.heads;
  args.kv_heads = shape.kv_heads;
  args.head_dim = shape.head_dim;
  args.q_offsets = ctx.rows().offsets;
  args.k_offsets = ctx.rows().offsets;
  args.q = heads.query_key.data;
  args.k = heads.key(shape).data;
  args.v = heads.value.data;
  args.out = out.data;
  args.ldq = args.ldk = heads.query_key.ld;
  args.ldv = heads.value.ld;
  args.ldo = out.ld;
  args.lse = log_sum_exp;
  args.scale = shape.scale;
  args.soft_cap = shape.soft_cap;
  args.window = shape.window;
  return args;
}

Status append(Context& ctx, const AttentionShape& shape, const Heads& heads, const LayerCache& cache) {
  if (ctx.planning()) return {};
  const Matrix key = heads.key(shape);
  const size_t bytes = static_cast<size_t>(bytes_of(key.dtype, shape.kv_size()));
  for (int64_t row = 0; row < key.rows; ++row) {
    std::byte* to =
        static_cast<std::byte*>(cache.rows.data) + bytes_of(key.dtype, (cache.length + row) * cache.rows.ld);
    for (const Matrix& from : {key, heads.value}) {
      INVAR_TRY(
          ctx.device().copy(to, static_cast<const std::byte*>(from.data) + bytes_of(from.dtype, row * from.ld), bytes));
      to += bytes;
    }
  }
  return {};
}

// Where the inverse RMS of each key head lies, behind that of each query head.
float* key_inv_rms(const AttentionShape& shape, const Matrix& inv_rms) {
  return inv_rms.f32() == nullptr ? nullptr : inv_rms.f32() + inv_rms.rows * shape.heads;
}

// What the attention core reads: rotated, and normalised first where the family does.
Result<Heads> make_heads(Context& ctx, const AttentionShape& shape, const AttentionWeights& weights, int64_t layer,
                         const Matrix& qkv) {
  Heads heads = Heads::of(shape, qkv);
  if (weights.query_norm >= 0) {
    const Heads raw = heads;
    INVAR_ASSIGN(heads.query_key,
                 ctx.save(layer, Slot::kQueryKey, qkv.dtype, qkv.rows, shape.query_size() + shape.kv_size()));
    INVAR_ASSIGN(const Matrix inv_rms,
                 ctx.save(layer, Slot::kHeadInvRms, DType::kF32, qkv.rows, shape.heads + shape.kv_heads));
    INVAR_TRY(head_norm_forward(ctx, weights.query_norm, shape.norm, shape.heads, raw.query(shape), heads.query(shape),
                                inv_rms.f32()));
    INVAR_TRY(head_norm_forward(ctx, weights.key_norm, shape.norm, shape.kv_heads, raw.key(shape), heads.key(shape),
                                key_inv_rms(shape, inv_rms)));
  }
  INVAR_TRY(rotate(ctx, shape, heads.query_key, /*inverse=*/false));
  return heads;
}

// From d_out, the gradient of the attention core's result, to d_qkv.
Status heads_backward(Context& ctx, const AttentionShape& shape, const AttentionWeights& weights, int64_t layer,
                      const Matrix& d_out, const Matrix& d_qkv) {
  const Matrix qkv = ctx.saved(layer, Slot::kQkv);
  const Heads raw = Heads::of(shape, qkv);
  Heads heads = raw, d_heads = Heads::of(shape, d_qkv);
  const bool normalised = weights.query_norm >= 0;
  Scratch d_query_key;
  if (normalised) {
    heads.query_key = ctx.saved(layer, Slot::kQueryKey);
    INVAR_ASSIGN(d_query_key, ctx.scratch("d_query_key", qkv.dtype, qkv.rows, heads.query_key.cols));
    d_heads.query_key = d_query_key.matrix;
  }
  invar_attention_backward_args args{};
  args.forward =
      core_args(ctx, shape, heads, ctx.saved(layer, Slot::kAttention), ctx.saved(layer, Slot::kLogSumExp).f32());
  args.d_out = d_out.data;
  args.d_q = d_heads.query_key.data;
  args.d_k = d_heads.key(shape).data;
  args.d_v = d_heads.value.data;
  INVAR_TRY(ctx.run<&Device::attention_backward>("attention.backward", args));
  INVAR_TRY(rotate(ctx, shape, d_heads.query_key, /*inverse=*/true));
  if (normalised) {
    const Matrix inv_rms = ctx.saved(layer, Slot::kHeadInvRms);
    const Heads out = Heads::of(shape, d_qkv);
    INVAR_TRY(head_norm_backward(ctx, weights.query_norm, shape.norm, shape.heads, d_heads.query(shape),
                                 raw.query(shape), inv_rms.f32(), out.query(shape)));
    INVAR_TRY(head_norm_backward(ctx, weights.key_norm, shape.norm, shape.kv_heads, d_heads.key(shape), raw.key(shape),
                                 key_inv_rms(shape, inv_rms), out.key(shape)));
    ctx.drop(layer, Slot::kQueryKey);
    ctx.drop(layer, Slot::kHeadInvRms);
  }
  ctx.drop(layer, Slot::kLogSumExp);
  ctx.drop(layer, Slot::kAttention);
  ctx.drop(layer, Slot::kQkv);
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
  INVAR_TRY(norm_forward(ctx, weights.norm, shape.norm, input, normed, inv_rms.f32()));

  INVAR_ASSIGN(const Matrix qkv, ctx.save(layer, Slot::kQkv, act, tokens, shape.qkv_size()));
  const bool has_bias = weights.qkv_bias >= 0;
  const Matrix bias = has_bias ? bias_rows(ctx, weights.qkv_bias, tokens, shape.qkv_size()) : Matrix{};
  INVAR_TRY(linear_forward(ctx, weights.qkv, normed, qkv, has_bias ? &bias : nullptr));
  INVAR_ASSIGN(const Heads heads, make_heads(ctx, shape, weights, layer, qkv));

  INVAR_ASSIGN(const Matrix out, ctx.save(layer, Slot::kAttention, act, tokens, shape.query_size()));
  INVAR_ASSIGN(const Matrix lse, ctx.save(layer, Slot::kLogSumExp, DType::kF32, shape.heads, tokens));
  invar_attention_args args = core_args(ctx, shape, heads, out, lse.f32());
  if (cache != nullptr) {
    INVAR_TRY(append(ctx, shape, heads, *cache));
    args.k = cache->rows.data;
    args.v = cache->rows.columns(shape.kv_size(), shape.kv_size()).data;
    args.ldk = args.ldv = cache->rows.ld;
    args.k_offsets = cache->offsets;
  }
  INVAR_TRY(ctx.run<&Device::attention>("attention.forward", args));

  INVAR_ASSIGN(const Matrix middle, ctx.save(layer, Slot::kMiddle, DType::kF32, tokens, shape.hidden));
  if (weights.branch_norm < 0) return linear_forward(ctx, weights.out, out, middle, &input);
  INVAR_ASSIGN(const Matrix branch, ctx.save(layer, Slot::kAttentionBranch, act, tokens, shape.hidden));
  INVAR_ASSIGN(const Matrix branch_inv_rms, ctx.save(layer, Slot::kAttentionBranchInvRms, DType::kF32, tokens, 1));
  INVAR_TRY(linear_forward(ctx, weights.out, out, branch));
  return branch_norm_forward(ctx, weights.branch_norm, shape.norm, branch, input, middle, branch_inv_rms.f32());
}

Status attention_backward(Context& ctx, const AttentionShape& shape, const AttentionWeights& weights, int64_t layer,
                          const Matrix& residual_gradient, const Matrix& copy) {
  const int64_t tokens = ctx.rows().tokens;
  const DType act = ctx.activations();
  INVAR_ASSIGN(Scratch d_qkv, ctx.scratch("d_qkv", act, tokens, shape.qkv_size()));
  {
    INVAR_ASSIGN(Scratch d_out, ctx.scratch("d_attention", act, tokens, shape.query_size()));
    {
      Matrix d_branch = copy;
      Scratch before_norm;
      if (weights.branch_norm >= 0) {
        INVAR_ASSIGN(before_norm, ctx.scratch("d_attention_branch", act, tokens, shape.hidden));
        d_branch = before_norm.matrix;
        INVAR_TRY(branch_norm_backward(ctx, weights.branch_norm, shape.norm, copy,
                                       ctx.saved(layer, Slot::kAttentionBranch),
                                       ctx.saved(layer, Slot::kAttentionBranchInvRms).f32(), d_branch));
        ctx.drop(layer, Slot::kAttentionBranch);
        ctx.drop(layer, Slot::kAttentionBranchInvRms);
      }
      INVAR_TRY(linear_data_gradient(ctx, weights.out, d_branch, d_out.matrix));
      INVAR_TRY(linear_weight_gradient(ctx, weights.out, d_branch, ctx.saved(layer, Slot::kAttention)));
    }
    INVAR_TRY(heads_backward(ctx, shape, weights, layer, d_out.matrix, d_qkv.matrix));
  }
  if (weights.qkv_bias >= 0) INVAR_TRY(bias_gradient(ctx, weights.qkv_bias, d_qkv.matrix));
  INVAR_TRY(linear_weight_gradient(ctx, weights.qkv, d_qkv.matrix, ctx.saved(layer, Slot::kAttentionNorm)));
  ctx.drop(layer, Slot::kAttentionNorm);
  INVAR_ASSIGN(Scratch d_normed, ctx.scratch("d_norm", act, tokens, shape.hidden));
  INVAR_TRY(linear_data_gradient(ctx, weights.qkv, d_qkv.matrix, d_normed.matrix));
  INVAR_TRY(norm_backward(ctx, weights.norm, shape.norm, d_normed.matrix, ctx.saved(layer, Slot::kInput),
                          ctx.saved(layer, Slot::kAttentionInvRms).f32(), residual_gradient, /*accumulate=*/true,
                          copy));
  ctx.drop(layer, Slot::kAttentionInvRms);
  ctx.drop(layer, Slot::kInput);
  return {};
}

}  // namespace invar
