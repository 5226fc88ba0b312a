#include "core/device/cpu/head_loss/softmax_row.h"

namespace invar::cpu {

namespace portable {
SoftmaxRow softmax_row_level();
}
namespace avx2 {
SoftmaxRow softmax_row_level();
}
namespace avx512 {
SoftmaxRow softmax_row_level();
}

SoftmaxRow softmax_row(Level level) {
#if defined(__x86_64__)
  if (level >= Level::kAvx512) return avx512::softmax_row_level();
  if (level == Level::kAvx2) return avx2::softmax_row_level();
#endif
  static_cast<void>(level);
  return portable::softmax_row_level();
}

}  // namespace invar::cpu
