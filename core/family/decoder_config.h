// What the decoder families share: the keys of a config.json that mean the same in each, and the list of tensors.
//
// A family's file calls read_decoder_config, then reads what is its own and refuses what it does not know.
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "core/family/family.h"
#include "core/family/json_fields.h"

namespace invar {

// Sizes, norm epsilon, tied embeddings, special tokens, and rope with its scaling.
Result<ModelShape> read_decoder_config(const Fields& fields, std::string_view path, std::string_view family);
// `theta` and `scaling` from an object of rope parameters (rope_scaling or rope_parameters).
Status read_rope(const Fields& rope, const ModelShape& shape, double& theta, RopeScaling& scaling);
// The same keys, for write.
nlohmann::ordered_json decoder_config(const ModelShape& shape, const Family& family, std::string_view torch_dtype);

// Absent, false or equal to what is supported; anything else changes what the model computes.
Status require_false(const Fields& fields, const char* key);
Status require_absent(const Fields& fields, std::initializer_list<const char*> keys);
// One of `names`, or absent when the first is the default.
Status require_one_of(const Fields& fields, const char* key, std::initializer_list<std::string_view> names);
// A positive number, or 0 when absent.
Result<double> number_or_zero(const Fields& fields, const char* key);

// "layer_types" when it is there, else is_windowed(layer): the window of each layer; empty when no layer has one.
Result<std::vector<int64_t>> read_windows(const Fields& fields, const ModelShape& shape, int64_t window,
                                          bool (*is_windowed)(int64_t layer, const ModelShape& shape));
// "sliding_attention", "full_attention" by layer.
std::vector<std::string> layer_types(const ModelShape& shape);

// Every tensor that the shape's traits ask for, in the Hugging Face spelling that these families share.
std::vector<ParameterSpec> decoder_parameters(const ModelShape& shape);

}  // namespace invar
