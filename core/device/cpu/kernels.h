// What a CPU kernel sees (Context) and what a kernel family fills in (Kernels).
//
//   int32_t swiglu_avx512(Context& context, const invar_swiglu_args& args) {
//     parallel_for(context, blocks, [&](int64_t block, int32_t worker) { ... });
//     return 0;
//   }
//
// A family lives in its own folder with scalar code, one file per instruction set and a `fill` function
// that overwrites its entries for a level; select.cc starts from the scalar reference and calls every fill.
// Kernels trust their arguments: check_args.cc has refused bad dtypes, sizes and pointers before.
//
// Files compiled for one instruction set may include this header: it holds no function with external
// linkage that the linker could merge across instruction sets.
// Thread rule: a Context belongs to one operation at a time; inside parallel_for a task uses only the
// scratch of its own worker number.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/device/backend_abi.h"

namespace invar::cpu {

// Ordered: a level includes everything below it.
enum class Level : int32_t {
  kPortable = 0,
  kAvx2 = 1,        // AVX2, FMA, F16C
  kAvx512 = 2,      // F, BW, DQ, VL
  kAvx512Bf16 = 3,  // vdpbf16ps
  kAmx = 4,         // AMX tiles with BF16 products, allowed by the kernel
};
constexpr int kLevels = 5;

// Every user of scratch memory has its slot, so that an operation may call another one.
enum ScratchSlot : int32_t { kScratchMatmul = 0, kScratchOperation = 1, kScratchSlots = 2 };

struct Kernels;

struct ScratchMemory {
  void* memory;
  size_t bytes;
};

struct Context {
  invar_backend_host host;
  const Kernels* kernels;
  Level level;
  int32_t threads;                // worker numbers are below this
  ScratchMemory* worker_scratch;  // [kScratchSlots][threads]
  ScratchMemory shared_scratch[kScratchSlots];
};

// Makes sure that every worker's scratch (or the shared one) holds `bytes`; false when out of memory.
// Memory only grows and is kept, so that after the first step nothing is allocated and no page faults.
// Contents are undefined; call before parallel_for, never inside it. May move the memory.
bool reserve_worker_scratch(Context& context, ScratchSlot slot, size_t bytes);
bool reserve_shared_scratch(Context& context, ScratchSlot slot, size_t bytes);

// 64-byte aligned, valid until the next reserve of the slot.
static inline void* worker_scratch(const Context& context, ScratchSlot slot, int32_t worker) {
  return context.worker_scratch[slot * context.threads + worker].memory;
}
static inline void* shared_scratch(const Context& context, ScratchSlot slot) {
  return context.shared_scratch[slot].memory;
}

// Runs task(item, worker) for item in [0, count). Cut items at boundaries that do not depend on the
// number of threads. Do not nest.
template <typename Task>
static inline void parallel_for(Context& context, int64_t count, const Task& task) {
  context.host.parallel_for(
      context.host.host, count,
      [](void* user, int64_t item, int32_t worker) { (*static_cast<const Task*>(user))(item, worker); },
      const_cast<Task*>(&task));
}

// The canonical codes a kernel returns.
constexpr int32_t kOk = 0;
constexpr int32_t kInvalidArgument = 3;
constexpr int32_t kResourceExhausted = 8;

// DType numbers, spelled without including C++ headers of other components.
constexpr int32_t kF32 = 1;
constexpr int32_t kBF16 = 3;

// The operations of backend_abi.h with a Context in front; semantics are written there.
struct Kernels {
  int32_t (*cast)(Context&, void* to, int32_t to_dtype, const void* from, int32_t from_dtype, int64_t count);
  int32_t (*add)(Context&, void* out, const void* a, const void* b, int32_t dtype, int64_t count);
  int32_t (*sum_squares)(Context&, const float* x, int64_t count, double* sum);
  int32_t (*all_finite)(Context&, const float* x, int64_t count, int32_t* finite);
  int32_t (*soft_cap)(Context&, float* x, int64_t count, float cap);

  size_t (*matmul_packed_bytes)(Context&, int32_t dtype, int64_t inner, int64_t cols, int32_t transpose_b);
  int32_t (*matmul_pack)(Context&, void* packed, const void* b, int32_t dtype, int64_t inner, int64_t cols, int64_t ldb,
                         int32_t transpose_b);
  int32_t (*matmul)(Context&, const invar_matmul_args&);

  int32_t (*rmsnorm)(Context&, const invar_rmsnorm_args&);
  int32_t (*rmsnorm_backward)(Context&, const invar_rmsnorm_backward_args&);
  int32_t (*rope)(Context&, const invar_rope_args&);
  int32_t (*attention)(Context&, const invar_attention_args&);
  int32_t (*attention_backward)(Context&, const invar_attention_backward_args&);
  int32_t (*swiglu)(Context&, const invar_swiglu_args&);
  int32_t (*swiglu_backward)(Context&, const invar_swiglu_backward_args&);
  int32_t (*embedding)(Context&, const invar_embedding_args&);
  int32_t (*embedding_backward)(Context&, const invar_embedding_args&);
  int32_t (*head_loss)(Context&, const invar_head_loss_args&);
  int32_t (*adamw)(Context&, const invar_adamw_args&);
  int32_t (*quantize)(Context&, const invar_quantize_args&);
};

// core/device/cpu/reference: plain scalar versions of every operation; they also run on the context's
// parallel_for and give the same bits at any number of threads.
void fill_reference(Kernels& kernels);

// The table for a level: the reference, overwritten by each family's best version at or below it.
Kernels select_kernels(Level level);

}  // namespace invar::cpu
