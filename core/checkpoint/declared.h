// What a checkpoint's config files declare about quantisation. Hints only: see layout.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/container/checkpoint_folder.h"

namespace invar {

struct BlockSize {
  int64_t rows = 0, cols = 0;
};

// A declared quantiser of weights or activations (compressed-tensors' QuantizationArgs).
struct DeclaredQuantizer {
  std::string type;      // "float", "int"
  std::string strategy;  // "tensor", "channel", "block", "group", "tensor_group", "token"
  std::string scale_dtype;
  int bits = 0;
  int64_t group_size = 0;
  bool dynamic = false;
  std::optional<BlockSize> block;
};

struct WeightGroup {
  std::string name, format;
  std::vector<std::string> targets;  // class names, module names or "re:" patterns
  std::optional<DeclaredQuantizer> weights, inputs;
};

struct Declared {
  bool quantized = false;  // any config says so
  std::string file;        // that declares it: "config.json"
  std::string method;      // quant_method: "fp8", "compressed-tensors", ...
  std::string algorithm;   // ModelOpt's quant_algo
  std::string format, scale_format, activation_scheme, expert_dtype;
  std::string model_type;
  std::string producer, producer_file;  // "modelopt 0.23.0", and the config that says so
  std::optional<BlockSize> block;
  std::vector<WeightGroup> groups;
  // For fused projections: 0 when the config does not say.
  int64_t heads = 0, kv_heads = 0, head_dim = 0;

  // The group of the quantised matrix `module` ("model.layers.0.mlp.up_proj"): the only one there is; else by targets,
  // module names and "re:" patterns first, then class names (every matrix is taken as a Linear). Null when none fits.
  const WeightGroup* group_of(std::string_view module) const;
};

// Reads config.json, hf_quant_config.json and params.json where they exist; "checkpoint.bad_config" for wrong types.
Result<Declared> read_declared(const CheckpointFolder& folder);

}  // namespace invar
