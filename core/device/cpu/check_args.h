// Argument checks common to all levels, so that kernels need none. Each returns NULL or what is wrong.
#pragma once

#include "core/device/backend_abi.h"

namespace invar::cpu {

const char* check_cast(const void* to, int32_t to_dtype, const void* from, int32_t from_dtype, int64_t count);
const char* check_add(const void* out, const void* a, const void* b, int32_t dtype, int64_t count);
const char* check_vector(const float* x, int64_t count, const void* result);
const char* check_pack(const void* packed, const void* b, int32_t dtype, int64_t inner, int64_t cols, int64_t ldb,
                       int32_t transpose_b);
const char* check_args(const invar_matmul_args& args);
const char* check_args(const invar_rmsnorm_args& args);
const char* check_args(const invar_rmsnorm_backward_args& args);
const char* check_args(const invar_rope_args& args);
const char* check_args(const invar_attention_args& args);
const char* check_args(const invar_attention_backward_args& args);
const char* check_args(const invar_swiglu_args& args);
const char* check_args(const invar_swiglu_backward_args& args);
const char* check_forward(const invar_embedding_args& args);
const char* check_backward(const invar_embedding_args& args);
const char* check_args(const invar_head_loss_args& args);
const char* check_args(const invar_adamw_args& args);
const char* check_args(const invar_quantize_args& args);

}  // namespace invar::cpu
