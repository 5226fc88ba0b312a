#include "core/device/cpu/attention/attention.h"
#include "core/device/cpu/head_loss/head_loss.h"
#include "core/device/cpu/kernels.h"
#include "core/device/cpu/matmul/matmul.h"
#include "core/device/cpu/memory_bound/memory_bound.h"
#include "core/device/cpu/quantize/quantize.h"

namespace invar::cpu {

Kernels select_kernels(Level level) {
  Kernels kernels{};
  fill_reference(kernels);
  fill_matmul(kernels);
  fill_head_loss(kernels);
  fill_memory_bound(kernels, level);
  fill_attention(kernels, level);
  fill_quantize(kernels, level);
  return kernels;
}

}  // namespace invar::cpu
