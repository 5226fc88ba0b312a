#include "core/device/cpu/kernels.h"
#include "core/device/cpu/matmul/matmul.h"

namespace invar::cpu {

Kernels select_kernels(Level level) {
  Kernels kernels{};
  fill_reference(kernels);
  fill_matmul(kernels);
  static_cast<void>(level);
  return kernels;
}

}  // namespace invar::cpu
