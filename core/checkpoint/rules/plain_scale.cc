// "<weight>_scale" that multiplies, without a declared block: one for the tensor (AutoFP8, ModelOpt FP8, Quark, FNUZ),
// one for each part of a fused projection, or one for each row (FBGEMM, ModelOpt per channel).
#include "core/checkpoint/rules/rules.h"

namespace invar {
namespace {

const TensorInfo* plain_scale(const LayoutSource& source, const TensorInfo& weight) {
  if (!is_fp8(weight.dtype) || source.declared.method == "compressed-tensors" || source.block()) return nullptr;
  return source.folder.find(cat(weight.name, "_scale"));
}

// Where the parts of a fused projection end, by the heads that config.json declares; empty when it is not one.
std::vector<int64_t> part_ends(const Declared& declared, const TensorInfo& weight, int64_t parts) {
  if (weight.shape.size() != 2) return {};
  const int64_t rows = weight.shape[0];
  const std::string_view module = module_of(weight.name);
  if (module.ends_with("gate_up_proj") && parts == 2 && rows % 2 == 0) return {rows / 2, rows};
  if (module.ends_with("qkv_proj") && parts == 3) {
    const int64_t q = declared.heads * declared.head_dim, kv = declared.kv_heads * declared.head_dim;
    if (q > 0 && kv > 0 && q + 2 * kv == rows) return {q, q + kv, rows};
  }
  return {};
}

}  // namespace

void tensor_scale_rule(const LayoutSource& source, const TensorInfo& weight, std::vector<Reading>* readings) {
  const TensorInfo* scale = plain_scale(source, weight);
  if (scale == nullptr) return;
  const bool declared = source.declared.quantized && source.declared.method != "fbgemm_fp8";
  if (is_single(*scale)) {
    readings->push_back(float_reading(source, weight, *scale, tensor_grid(weight), "tensor_scale", "fp8-tensor-scale",
                                      declared, false));
    return;
  }
  if (scale->shape.size() != 1) return;
  const std::vector<int64_t> ends = part_ends(source.declared, weight, scale->shape[0]);
  if (ends.empty()) return;
  ScaleGrid grid = tensor_grid(weight);
  grid.row_ends = ends;
  grid.grid_rows = static_cast<int64_t>(ends.size());
  grid.shared = false;
  readings->push_back(
      float_reading(source, weight, *scale, std::move(grid), "part_scale", "fp8-tensor-scale", declared, false));
}

void row_scale_rule(const LayoutSource& source, const TensorInfo& weight, std::vector<Reading>* readings) {
  const TensorInfo* scale = plain_scale(source, weight);
  if (scale == nullptr || weight.shape.size() < 2) return;
  const ScaleGrid grid = row_grid(weight);
  std::vector<int64_t> flat = grid_shape(weight, grid);
  bool matches = scale->shape == flat;
  flat.pop_back();
  matches = matches || scale->shape == flat;
  if (!matches || is_single(*scale)) return;
  const bool declared =
      source.declared.method == "fbgemm_fp8" || source.declared.algorithm.find("PER_CHANNEL") != std::string::npos;
  readings->push_back(float_reading(source, weight, *scale, grid, "row_scale", "fp8-row-scale", declared, false));
}

}  // namespace invar
