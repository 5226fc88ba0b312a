// The Gemma families: gains are stored less 1, embeddings are scaled by sqrt(hidden), gates use GELU. Gemma 2 (2024)
// adds norms behind attention and MLP, soft caps and windows in every other layer; Gemma 3 (2025), its text part, drops
// the caps, normalises query and key heads and gives windowed layers their own rope base.
#pragma once

#include "core/family/family.h"

namespace invar {

extern const Family kGemmaFamily;
extern const Family kGemma2Family;
extern const Family kGemma3Family;

}  // namespace invar
