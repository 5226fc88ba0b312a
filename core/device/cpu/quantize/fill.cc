#include "core/device/cpu/quantize/quantize.h"

namespace invar::cpu {

namespace portable {
void fill_quantize_level(Kernels& kernels);
}
namespace avx2 {
void fill_quantize_level(Kernels& kernels);
}
namespace avx512 {
void fill_quantize_level(Kernels& kernels);
}

void fill_quantize(Kernels& kernels, Level level) {
#if defined(__x86_64__)
  if (level >= Level::kAvx512) return avx512::fill_quantize_level(kernels);
  if (level >= Level::kAvx2) return avx2::fill_quantize_level(kernels);
#endif
  static_cast<void>(level);
  portable::fill_quantize_level(kernels);
}

}  // namespace invar::cpu
