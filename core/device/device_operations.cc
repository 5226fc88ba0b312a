// Device's operations: the table's entry, and on failure a status that names the operation and its sizes.
#include "core/device/device.h"

namespace invar {
namespace {

int32_t number(DType dtype) { return static_cast<int32_t>(dtype); }
std::string_view spelled(int32_t dtype) { return name_of(static_cast<DType>(dtype)); }

// A copy of args whose struct_size is this library's.
template <typename Args>
Args sized(const Args& args) {
  Args copy = args;
  copy.struct_size = sizeof(copy);
  return copy;
}

}  // namespace

// The description is built only on failure: a step runs thousands of operations.
#define INVAR_RUN(call, ...)                      \
  do {                                            \
    const int32_t code_of_run = (call);           \
    if (code_of_run == 0) return {};              \
    return report(code_of_run, cat(__VA_ARGS__)); \
  } while (0)

Status Device::cast(void* to, DType to_dtype, const void* from, DType from_dtype, int64_t count) {
  INVAR_RUN(table_->cast(context_, to, number(to_dtype), from, number(from_dtype), count), "cast ", count, " elements ",
            name_of(from_dtype), " to ", name_of(to_dtype));
}

Status Device::add(void* out, const void* a, const void* b, DType dtype, int64_t count) {
  INVAR_RUN(table_->add(context_, out, a, b, number(dtype), count), "add ", count, " elements ", name_of(dtype));
}

Status Device::zero(void* memory, size_t bytes) {
  INVAR_RUN(table_->zero(context_, memory, bytes), "zero ", bytes, " bytes");
}

Status Device::copy(void* to, const void* from, size_t bytes) {
  INVAR_RUN(table_->copy(context_, to, from, bytes), "copy ", bytes, " bytes");
}

Result<double> Device::sum_squares(const float* x, int64_t count) {
  double sum = 0;
  const int32_t code = table_->sum_squares(context_, x, count, &sum);
  if (code != 0) return report(code, cat("sum_squares ", count, " elements"));
  return sum;
}

Result<bool> Device::all_finite(const float* x, int64_t count) {
  int32_t finite = 0;
  const int32_t code = table_->all_finite(context_, x, count, &finite);
  if (code != 0) return report(code, cat("all_finite ", count, " elements"));
  return finite != 0;
}

Status Device::soft_cap(float* x, int64_t count, float cap) {
  INVAR_RUN(table_->soft_cap(context_, x, count, cap), "soft_cap ", count, " elements at ", cap);
}

size_t Device::matmul_packed_bytes(DType dtype, int64_t inner, int64_t cols, bool transpose_b) const {
  return table_->matmul_packed_bytes(context_, number(dtype), inner, cols, transpose_b ? 1 : 0);
}

bool Device::matmul_gains_from_packing(DType dtype, bool transpose_b) const {
  return table_->matmul_gains_from_packing(context_, number(dtype), transpose_b ? 1 : 0) != 0;
}

Status Device::matmul_pack(void* packed, const void* b, DType dtype, int64_t inner, int64_t cols, int64_t ldb,
                           bool transpose_b) {
  INVAR_RUN(table_->matmul_pack(context_, packed, b, number(dtype), inner, cols, ldb, transpose_b ? 1 : 0),
            "matmul_pack ", inner, "x", cols, " ", name_of(dtype));
}

Status Device::matmul(const invar_matmul_args& args) {
  const auto call = sized(args);
  INVAR_RUN(table_->matmul(context_, &call), "matmul ", args.rows, "x", args.cols, "x", args.inner, " ",
            spelled(args.a_dtype), " x ", spelled(args.b_dtype), " to ", spelled(args.c_dtype));
}

Status Device::rmsnorm(const invar_rmsnorm_args& args) {
  const auto call = sized(args);
  INVAR_RUN(table_->rmsnorm(context_, &call), "rmsnorm ", args.rows, "x", args.cols);
}

Status Device::rmsnorm_backward(const invar_rmsnorm_backward_args& args) {
  const auto call = sized(args);
  INVAR_RUN(table_->rmsnorm_backward(context_, &call), "rmsnorm_backward ", args.rows, "x", args.cols);
}

Status Device::rope(const invar_rope_args& args) {
  const auto call = sized(args);
  INVAR_RUN(table_->rope(context_, &call), "rope ", args.tokens, " tokens, ", args.heads, " heads of ", args.head_dim);
}

Status Device::attention(const invar_attention_args& args) {
  const auto call = sized(args);
  INVAR_RUN(table_->attention(context_, &call), "attention ", args.sequences, " sequences, ", args.heads, "/",
            args.kv_heads, " heads of ", args.head_dim);
}

Status Device::attention_backward(const invar_attention_backward_args& args) {
  auto call = args;
  call.forward.struct_size = sizeof(call);  // the first member carries the size of all
  INVAR_RUN(table_->attention_backward(context_, &call), "attention_backward ", args.forward.sequences, " sequences, ",
            args.forward.heads, "/", args.forward.kv_heads, " heads of ", args.forward.head_dim);
}

Status Device::swiglu(const invar_swiglu_args& args) {
  const auto call = sized(args);
  INVAR_RUN(table_->swiglu(context_, &call), "swiglu ", args.rows, "x", args.cols);
}

Status Device::swiglu_backward(const invar_swiglu_backward_args& args) {
  auto call = args;
  call.forward.struct_size = sizeof(call);  // the first member carries the size of all
  INVAR_RUN(table_->swiglu_backward(context_, &call), "swiglu_backward ", args.forward.rows, "x", args.forward.cols);
}

Status Device::embedding(const invar_embedding_args& args) {
  const auto call = sized(args);
  INVAR_RUN(table_->embedding(context_, &call), "embedding ", args.tokens, " tokens, vocabulary ", args.vocab);
}

Status Device::embedding_backward(const invar_embedding_args& args) {
  const auto call = sized(args);
  INVAR_RUN(table_->embedding_backward(context_, &call), "embedding_backward ", args.tokens, " tokens, vocabulary ",
            args.vocab);
}

Status Device::head_loss(const invar_head_loss_args& args) {
  const auto call = sized(args);
  INVAR_RUN(table_->head_loss(context_, &call), "head_loss ", args.tokens, " tokens, hidden ", args.hidden,
            ", vocabulary ", args.vocab);
}

Status Device::adamw(const invar_adamw_args& args) {
  const auto call = sized(args);
  INVAR_RUN(table_->adamw(context_, &call), "adamw ", args.tensor_count, " tensors");
}

Status Device::quantize(const invar_quantize_args& args) {
  const auto call = sized(args);
  INVAR_RUN(table_->quantize(context_, &call), "quantize ", args.rows, "x", args.cols, " to ", spelled(args.format));
}

#undef INVAR_RUN

}  // namespace invar
