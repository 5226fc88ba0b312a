#include "core/nn/embedding.h"

namespace invar {
namespace {

invar_embedding_args table_args(const Matrix& table, const int32_t* ids, const Matrix& rows, float scale) {
  invar_embedding_args args{};
  args.table_dtype = table.device_dtype();
  args.out_dtype = rows.device_dtype();
  args.tokens = rows.rows;
  args.vocab = table.rows;
  args.cols = table.cols;
  args.ids = ids;
  args.table = table.data;
  args.out = rows.data;
  args.scale = scale;
  return args;
}

}  // namespace

Status embedding_forward(Context& ctx, WeightId id, const int32_t* ids, const Matrix& out, float scale) {
  INVAR_ASSIGN(const WeightView table, ctx.weight(id, WeightUse::kForward));
  return ctx.run<&Device::embedding>("embedding.forward", table_args(table.values, ids, out, scale));
}

Status embedding_backward(Context& ctx, WeightId id, const int32_t* ids, const Matrix& d_out, float scale) {
  INVAR_ASSIGN(const WeightView table, ctx.weight(id, WeightUse::kForward));
  invar_embedding_args args = table_args(table.values, ids, d_out, scale);
  INVAR_ASSIGN(args.d_table, ctx.parameters().gradient_to_add(id));
  return ctx.run<&Device::embedding_backward>("embedding.backward", args);
}

}  // namespace invar
