// Matrix products on the CPU: C = alpha * op(A) op(B) (+ C) (+ add), see invar_matmul_args.
//
// Invariant: the same bits at any number of threads and for packed and unpacked B.
// Thread rule: see kernels.h.
#pragma once

#include "core/device/cpu/kernels.h"
#include "core/device/cpu/matmul/engine.h"

namespace invar::cpu {

// The engine that a level uses for products of `dtype` operands.
const MatmulEngine& engine_for(Level level, int32_t dtype);

size_t packed_bytes(const MatmulEngine& engine, int32_t dtype, int64_t inner, int64_t cols);
int32_t pack_with(const MatmulEngine& engine, Context& context, void* packed, const Operand& b, int64_t inner,
                  int64_t cols);
int32_t matmul_with(const MatmulEngine& engine, Context& context, const invar_matmul_args& args);

void fill_matmul(Kernels& kernels);

}  // namespace invar::cpu
