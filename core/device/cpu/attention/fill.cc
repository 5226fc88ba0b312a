#include "core/device/cpu/attention/attention.h"

namespace invar::cpu {

namespace portable {
void fill_attention_level(Kernels& kernels);
}
namespace avx2 {
void fill_attention_level(Kernels& kernels);
}
namespace avx512 {
void fill_attention_level(Kernels& kernels);
}
namespace amx {
int32_t attention(Context& context, const invar_attention_args& args);
int32_t attention_backward(Context& context, const invar_attention_backward_args& args);
}  // namespace amx

void fill_attention(Kernels& kernels, Level level) {
#if defined(__x86_64__)
  if (level >= Level::kAmx) {
    kernels.attention = amx::attention;
    kernels.attention_backward = amx::attention_backward;
    return;
  }
  if (level >= Level::kAvx512) return avx512::fill_attention_level(kernels);
  if (level >= Level::kAvx2) return avx2::fill_attention_level(kernels);
#endif
  static_cast<void>(level);
  portable::fill_attention_level(kernels);
}

}  // namespace invar::cpu
