// The Qwen families: Qwen2 and 2.5 (Yang et al. 2024) have biases on query, key and value; Qwen3 (Yang et al. 2025) has
// none and normalises each head of query and key.
#pragma once

#include "core/family/family.h"

namespace invar {

extern const Family kQwen2Family;
extern const Family kQwen3Family;

}  // namespace invar
