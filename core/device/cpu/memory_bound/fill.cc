#include "core/device/cpu/memory_bound/memory_bound.h"

namespace invar::cpu {

namespace portable {
void fill_memory_bound_level(Kernels& kernels);
}
namespace avx2 {
void fill_memory_bound_level(Kernels& kernels);
}
namespace avx512 {
void fill_memory_bound_level(Kernels& kernels);
}
namespace avx512_bf16 {
void fill_memory_bound_level(Kernels& kernels);
}

void fill_memory_bound(Kernels& kernels, Level level) {
#if defined(__x86_64__)
  if (level >= Level::kAvx512Bf16) return avx512_bf16::fill_memory_bound_level(kernels);
  if (level >= Level::kAvx512) return avx512::fill_memory_bound_level(kernels);
  if (level >= Level::kAvx2) return avx2::fill_memory_bound_level(kernels);
#endif
  static_cast<void>(level);
  portable::fill_memory_bound_level(kernels);
}

}  // namespace invar::cpu
