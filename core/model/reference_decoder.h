// The decoder in plain FP64 loops: what the tests compare the model with. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/family/family.h"

namespace invar::testing {

using ReferenceWeights = std::map<std::string, std::vector<double>>;

// Logits [tokens, vocab] of one sequence at positions 0, 1, ...
std::vector<double> reference_logits(const ModelShape& shape, const ReferenceWeights& weights,
                                     std::span<const int32_t> ids);
// Sum of the cross-entropies; negative targets give none. offsets: [sequences + 1].
double reference_loss(const ModelShape& shape, const ReferenceWeights& weights, std::span<const int32_t> ids,
                      std::span<const int32_t> targets, std::span<const int32_t> offsets);

}  // namespace invar::testing
