// Operations that memory bandwidth limits: one pass over each operand, vectors of the level's width.
//
// Invariant: work is cut at fixed element boundaries, so the number of threads never changes a bit.
// Semantics: core/device/backend_abi.h; the scalar versions stand in core/device/cpu/reference.
#pragma once

#include "core/device/cpu/kernels.h"

namespace invar::cpu {

// Overwrites the entries of this family with the best version at or below `level`.
void fill_memory_bound(Kernels& kernels, Level level);

}  // namespace invar::cpu

#if defined(INVAR_LEVEL_NAME)
namespace invar::cpu::INVAR_LEVEL_NAME {

int32_t cast(Context& context, void* to, int32_t to_dtype, const void* from, int32_t from_dtype, int64_t count);
int32_t add(Context& context, void* out, const void* a, const void* b, int32_t dtype, int64_t count);
int32_t sum_squares(Context& context, const float* x, int64_t count, double* sum);
int32_t all_finite(Context& context, const float* x, int64_t count, int32_t* finite);
int32_t soft_cap(Context& context, float* x, int64_t count, float cap);
int32_t rmsnorm(Context& context, const invar_rmsnorm_args& args);
int32_t rmsnorm_backward(Context& context, const invar_rmsnorm_backward_args& args);
int32_t rope(Context& context, const invar_rope_args& args);
int32_t swiglu(Context& context, const invar_swiglu_args& args);
int32_t swiglu_backward(Context& context, const invar_swiglu_backward_args& args);
int32_t embedding(Context& context, const invar_embedding_args& args);
int32_t embedding_backward(Context& context, const invar_embedding_args& args);
int32_t adamw(Context& context, const invar_adamw_args& args);

// Elements a task takes: some 100 KB of operands, enough to hide the cost of taking a task.
constexpr int64_t kChunk = 32768;

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Rows of a [rows, cols] operand that make up about one chunk.
static inline int64_t rows_in_chunk(int64_t cols) { return larger(1, kChunk / larger(cols, 1)); }

// Runs body(first, last) over [0, count) cut into pieces of `size`.
template <typename Body>
static inline void for_pieces(Context& context, int64_t count, int64_t size, const Body& body) {
  parallel_for(context, ceil_div(count, size),
               [&](int64_t piece, int32_t) { body(piece * size, smaller(count, (piece + 1) * size)); });
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
#endif
