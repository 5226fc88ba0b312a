// Two E2M1 codes a byte, the low nibble first: MXFP4 (one E8M0 scale for 32 values) and NVFP4 (an E4M3 scale for 16
// values and an FP32 scale for the tensor), as compressed-tensors, ModelOpt and DeepSeek-V4 store them.
// compressed-tensors' global scale divides, ModelOpt's weight_scale_2 multiplies.
#include "core/checkpoint/rules/rules.h"

namespace invar {
namespace {

// The weight as its values lie: the last dimension twice as long.
TensorInfo unpacked(const TensorInfo& packed) {
  TensorInfo logical = packed;
  if (!logical.shape.empty()) logical.shape.back() *= 2;
  return logical;
}

struct Names {
  std::string weight;  // in the result
  const TensorInfo* scale = nullptr;
  const TensorInfo* global = nullptr;  // null: one level
  bool global_divides = false;
  std::string layout;
};

void push(const LayoutSource& source, const TensorInfo& packed, const Names& names, std::vector<Reading>* readings) {
  const TensorInfo logical = unpacked(packed);
  const bool two_levels = names.global != nullptr;
  const ScaleGrid grid = block_grid(logical, {1, two_levels ? 16 : 32});
  const bool right_dtype = two_levels ? names.scale->dtype == DType::kE4M3FN
                                      : names.scale->dtype == DType::kU8 || names.scale->dtype == DType::kE8M0;
  if (!right_dtype || names.scale->shape != grid_shape(logical, grid) || (two_levels && !is_single(*names.global))) {
    readings->push_back(
        failed_reading(packed, names.layout, true,
                       scale_shape_error(source, logical, *names.scale, grid,
                                         two_levels ? "E4M3 scales for groups of 16 and one scale for the tensor"
                                                    : "E8M0 scales for groups of 32")));
    return;
  }
  Reading reading = failed_reading(packed, names.layout, true, {});
  reading.plan.rule = "block_scale";
  reading.plan.coding = Coding::kPackedFp4;
  reading.plan.code_dtype = DType::kE2M1;
  reading.plan.scales.push_back({names.scale, two_levels ? DType::kE4M3FN : DType::kE8M0, false, grid});
  if (two_levels) reading.plan.scales.push_back({names.global, names.global->dtype, names.global_divides, {}});
  reading.plan.name = names.weight;
  reading.plan.shape = logical.shape;
  readings->push_back(std::move(reading));
}

}  // namespace

void packed_fp4_rule(const LayoutSource& source, const TensorInfo& packed, std::vector<Reading>* readings) {
  if ((packed.dtype != DType::kU8 && packed.dtype != DType::kI8) || packed.shape.size() < 2) return;
  const auto find = [&](const std::string& name) { return source.folder.find(name); };
  Names names;
  if (packed.name.ends_with(".weight_packed") && packed.dtype == DType::kU8) {
    const std::string stem = packed.name.substr(0, packed.name.size() - std::string_view("_packed").size());
    names.weight = stem;
    names.scale = find(stem + "_scale");
    names.global = find(stem + "_global_scale");
    names.global_divides = true;
    names.layout = names.global != nullptr ? "compressed-tensors-nvfp4" : "compressed-tensors-mxfp4";
  } else if (packed.name.ends_with(".weight")) {
    names.weight = packed.name;
    names.global = find(packed.name + "_scale_2");
    if (names.global != nullptr) {
      names.scale = find(packed.name + "_scale");
      names.layout = "modelopt-nvfp4";
    } else {
      names.scale = find(cat(module_of(packed.name), ".scale"));
      names.layout = "deepseek-v4";
      if (names.scale != nullptr && names.scale->dtype != DType::kE8M0) names.scale = nullptr;
    }
  }
  if (names.scale == nullptr) return;
  push(source, packed, names, readings);
}

}  // namespace invar
