// Every device operation as plain loops: what the fast kernels are tested against, and what runs where no fast
// kernel exists. Arithmetic is FP64 inside (quantize: the FP32 operations that define the codes); storage rounds
// once, to nearest even. Semantics: core/device/backend_abi.h. Arguments have been checked before (check_args.h).
//
//   int32_t code = reference::rmsnorm(context, args);   // 0 or 8 RESOURCE_EXHAUSTED
//
// Invariant: every sum has one fixed order, whatever the number of threads.
// Thread rule: as every kernel (kernels.h).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/device/cpu/kernels.h"

namespace invar::cpu::reference {

int32_t cast(Context& context, void* to, int32_t to_dtype, const void* from, int32_t from_dtype, int64_t count);
int32_t add(Context& context, void* out, const void* a, const void* b, int32_t dtype, int64_t count);
int32_t sum_squares(Context& context, const float* x, int64_t count, double* sum);
int32_t all_finite(Context& context, const float* x, int64_t count, int32_t* finite);
int32_t soft_cap(Context& context, float* x, int64_t count, float cap);

// The packed form is op(B) [inner, cols], row-major, in `dtype`.
size_t matmul_packed_bytes(Context& context, int32_t dtype, int64_t inner, int64_t cols, int32_t transpose_b);
int32_t matmul_pack(Context& context, void* packed, const void* b, int32_t dtype, int64_t inner, int64_t cols,
                    int64_t ldb, int32_t transpose_b);
int32_t matmul(Context& context, const invar_matmul_args& args);
int32_t head_loss(Context& context, const invar_head_loss_args& args);

int32_t rmsnorm(Context& context, const invar_rmsnorm_args& args);
int32_t rmsnorm_backward(Context& context, const invar_rmsnorm_backward_args& args);
int32_t rope(Context& context, const invar_rope_args& args);
int32_t attention(Context& context, const invar_attention_args& args);
int32_t attention_backward(Context& context, const invar_attention_backward_args& args);
int32_t swiglu(Context& context, const invar_swiglu_args& args);
int32_t swiglu_backward(Context& context, const invar_swiglu_backward_args& args);
int32_t embedding(Context& context, const invar_embedding_args& args);
int32_t embedding_backward(Context& context, const invar_embedding_args& args);
int32_t adamw(Context& context, const invar_adamw_args& args);
int32_t quantize(Context& context, const invar_quantize_args& args);

}  // namespace invar::cpu::reference
