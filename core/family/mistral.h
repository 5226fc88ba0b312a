// The Mistral family (Jiang et al. 2023): Llama with a window on what a token attends to, in every layer.
#pragma once

#include "core/family/family.h"

namespace invar {

extern const Family kMistralFamily;

}  // namespace invar
