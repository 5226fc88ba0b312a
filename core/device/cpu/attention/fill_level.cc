#include "core/device/cpu/attention/attention.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

void fill_attention_level(Kernels& kernels);

void fill_attention_level(Kernels& kernels) {
  kernels.attention = attention;
  kernels.attention_backward = attention_backward;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
