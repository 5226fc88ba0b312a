// What one instruction set contributes to matrix products: prepared operands and a micro-kernel.
//
// The driver (matmul.cc) cuts C into tasks, tasks into micro-tiles of mr x nr, and the inner dimension into
// blocks. For each block it prepares A (slivers of mr rows) and B (panels of nr columns) in the form that the
// micro-kernel reads; micro-tiles are computed in FP32, and after the last block `store` makes C of them.
//
// Two kinds: "wide" engines hold prepared operands as FP32 and multiply with FMA (BF16 is widened exactly);
// "pair" engines hold BF16 with two consecutive inner elements side by side (vdpbf16ps, AMX).
//
// Invariant: the additions of one element of C come in one order, wherever the cuts between tasks lie.
// Files compiled for one instruction set include this header: only plain declarations.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace invar::cpu {

// A finished tile becomes C: c = round(alpha * tile [+ c] [+ add]).
struct StoreArgs {
  const float* tile;  // [rows, cols], rows lie nr apart
  int64_t rows, cols;
  float alpha;
  void* c;
  int32_t c_dtype;
  int64_t ldc;
  int32_t accumulate;
  const void* add;  // or NULL
  int32_t add_dtype;
  int64_t ld_add;
  double* sum_squares;  // or NULL; receives this tile's sum
};

// An operand as it lies in the caller's memory, from the first element of the block to prepare.
struct Operand {
  const void* data;
  int64_t ld;
  int32_t dtype;
  int32_t is_transposed;  // the inner dimension is the slow one for A, the fast one for B
};

struct MatmulEngine {
  const char* name;
  int32_t mr, nr;          // micro-tile
  int32_t k_step;          // prepared operands are padded with zeros to a multiple of it
  int32_t k_block;         // largest inner block, a multiple of k_step
  int32_t prepared_bytes;  // of one prepared element
  int32_t multiply_rate;   // multiply-adds a cycle, for the choice of tasks

  // Bytes of one prepared sliver of A for k inner elements.
  size_t (*sliver_bytes)(int64_t k, int32_t is_transposed);
  // Prepares [rows, k] of A: ceil(rows / mr) slivers.
  void (*prepare_a)(void* to, const Operand& a, int64_t rows, int64_t k);
  // Prepares one panel [k, cols], cols <= nr, of B: round_up(k, k_step) * nr elements.
  void (*prepare_b)(void* to, const Operand& b, int64_t k, int64_t cols);

  // The persistent form of a panel, round_up(k, k_step) * nr elements of the dtype's own size, whose rows
  // (k steps) are contiguous. open_panel makes the prepared form of a run of them in `to`, or returns
  // `packed` itself where the forms agree.
  void (*pack_panel)(void* packed, const Operand& b, int64_t k, int64_t cols);
  const void* (*open_panel)(void* to, const void* packed, int32_t dtype, int64_t k);

  // tile [rows, nr] = or += sliver x panel; rows <= mr.
  void (*multiply)(const void* sliver, int32_t is_transposed, const void* panel, int64_t k, int64_t rows, float* tile,
                   int32_t accumulate);
  void (*store)(const StoreArgs& args);

  // The same for at most `packed_rows` rows and a run of a packed BF16 panel that was not opened: reading it is then
  // the whole cost. NULL where packed panels are read as they are anyway.
  int32_t packed_rows;
  void (*multiply_packed)(const void* sliver, const void* packed, int64_t k, int64_t rows, float* tile,
                          int32_t accumulate);

  // Around the products of one task (AMX: tile configuration), or NULL.
  void (*begin)();
  void (*end)();
};

// The wide engine, compiled for each level (takes F32 and BF16), and the pair engines (BF16).
namespace portable {
extern const MatmulEngine kWideEngine;
}
namespace avx2 {
extern const MatmulEngine kWideEngine;
}
namespace avx512 {
extern const MatmulEngine kWideEngine;
}
extern const MatmulEngine kDotEngine;  // vdpbf16ps
extern const MatmulEngine kAmxEngine;

}  // namespace invar::cpu
