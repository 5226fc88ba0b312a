// The merging loop of byte-pair encoding. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/text/pipeline/pair_table.h"

namespace invar {

// Joins pairs in place until none is left: O(n^2) in registers and caches for short words, O(n log n) for long ones.
void merge_symbols(const PairTable& pairs, std::vector<int32_t>* symbols);

}  // namespace invar
