// Partial conversions: the weights that patterns name are converted, everything else stays as it is stored, and the
// config goes on describing it.
//
//   std::vector<std::string> converted;
//   INVAR_TRY(keep_all_but({"*.mlp.*"}, folder, &layout, &converted));
//   options.no_longer_quantized = converted;   // for plan_side_files
//
// Thread rule: functions without state.
#pragma once

#include <string>
#include <vector>

#include "core/checkpoint/layout.h"

namespace invar {

// Turns every quantised plan of `layout` that no pattern names into a copy (rule "kept") of the stored tensor, and so
// the scales and helpers that it uses. A shell pattern names a weight by its stored name, its name in the result, or
// its module (the name without ".weight"). Activation and cache scales stay unless their module is converted.
// `converted` receives the modules that are still converted, sorted; none when every quantised weight is.
// "convert.pattern_matches_nothing" names a pattern without a quantised weight; "convert.partial_needs_safetensors" is
// said of files that safetensors cannot hold as they are stored.
Status keep_all_but(const std::vector<std::string>& patterns, const CheckpointFolder& folder, Layout* layout,
                    std::vector<std::string>* converted);

// The module of a weight: "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight".
std::string module_of(std::string_view weight);

}  // namespace invar
