#include "core/device/cpu/memory_bound/memory_bound.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

void fill_memory_bound_level(Kernels& kernels);

void fill_memory_bound_level(Kernels& kernels) {
  kernels.cast = cast;
  kernels.add = add;
  kernels.sum_squares = sum_squares;
  kernels.all_finite = all_finite;
  kernels.soft_cap = soft_cap;
  kernels.rmsnorm = rmsnorm;
  kernels.rmsnorm_backward = rmsnorm_backward;
  kernels.rope = rope;
  kernels.swiglu = swiglu;
  kernels.swiglu_backward = swiglu_backward;
  kernels.embedding = embedding;
  kernels.embedding_backward = embedding_backward;
  kernels.adamw = adamw;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
