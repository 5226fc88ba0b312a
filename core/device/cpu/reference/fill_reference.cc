#include "core/device/cpu/reference/reference.h"

namespace invar::cpu {

void fill_reference(Kernels& kernels) {
  kernels.cast = reference::cast;
  kernels.add = reference::add;
  kernels.sum_squares = reference::sum_squares;
  kernels.all_finite = reference::all_finite;
  kernels.soft_cap = reference::soft_cap;
  kernels.matmul_packed_bytes = reference::matmul_packed_bytes;
  kernels.matmul_pack = reference::matmul_pack;
  kernels.matmul = reference::matmul;
  kernels.rmsnorm = reference::rmsnorm;
  kernels.rmsnorm_backward = reference::rmsnorm_backward;
  kernels.rope = reference::rope;
  kernels.attention = reference::attention;
  kernels.attention_backward = reference::attention_backward;
  kernels.swiglu = reference::swiglu;
  kernels.swiglu_backward = reference::swiglu_backward;
  kernels.embedding = reference::embedding;
  kernels.embedding_backward = reference::embedding_backward;
  kernels.head_loss = reference::head_loss;
  kernels.adamw = reference::adamw;
  kernels.quantize = reference::quantize;
}

}  // namespace invar::cpu
