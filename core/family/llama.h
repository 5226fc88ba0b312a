// The Llama family (Touvron et al. 2023): RMSNorm, rotary positions ("rotate half"), grouped-query attention, SwiGLU.
#pragma once

#include "core/family/family.h"

namespace invar {

extern const Family kLlamaFamily;

}  // namespace invar
