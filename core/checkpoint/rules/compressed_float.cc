// compressed-tensors' float-quantized weights: "<weight>_scale" in the model's dtype. The declared strategy decides
// how it lies over the weight, not its shape: a [N, 1] grid of blocks looks like one scale a row.
#include "core/checkpoint/rules/rules.h"

namespace invar {
namespace {

constexpr char kLayout[] = "compressed-tensors-float";

}  // namespace

void compressed_float_rule(const LayoutSource& source, const TensorInfo& weight, std::vector<Reading>* readings) {
  if (!is_fp8(weight.dtype) || source.declared.method != "compressed-tensors") return;
  const TensorInfo* scale = source.folder.find(cat(weight.name, "_scale"));
  if (scale == nullptr) return;
  const auto fail = [&](std::string_view reason, std::string why) {
    readings->push_back(
        failed_reading(weight, kLayout, true, Error(Code::kDataLoss, reason, cat(source.label(weight), ": ", why))));
  };
  const WeightGroup* group = source.declared.group_of(module_of(weight.name));
  if (group == nullptr || !group->weights) {
    return fail("checkpoint.ambiguous_scale",
                cat("no group of ", source.declared.file, "'s config_groups says how its scale ",
                    in_quotes(scale->name), " lies over it; state --assume block=ROWSxCOLS"));
  }
  const DeclaredQuantizer& weights = *group->weights;
  const bool bytes = weights.scale_dtype.find("uint8") != std::string::npos || group->format.starts_with("mx") ||
                     source.declared.format.starts_with("mx");
  const std::string declared =
      cat("strategy \"", weights.strategy, "\" of ", group->name, " in ", source.declared.file);
  ScaleGrid grid;
  std::string rule;
  bool matches = false;
  if (weights.strategy == "tensor") {
    grid = tensor_grid(weight);
    rule = "tensor_scale";
    matches = is_single(*scale);
  } else if (weights.strategy == "channel") {
    grid = row_grid(weight);
    rule = "row_scale";
    std::vector<int64_t> flat = grid_shape(weight, grid);
    matches = scale->shape == flat;
    flat.pop_back();
    matches = matches || scale->shape == flat;
  } else if (weights.strategy == "block" || weights.strategy == "group") {
    std::optional<BlockSize> block = source.block();
    if (weights.strategy == "group" && weights.group_size > 0) block = BlockSize{1, weights.group_size};
    if (weights.strategy == "block" && weights.block) block = weights.block;
    if (!block) {
      return fail("checkpoint.ambiguous_scale", cat(declared, " gives no block size; state --assume block=ROWSxCOLS"));
    }
    grid = block_grid(weight, *block);
    rule = "block_scale";
    matches = scale->shape == grid_shape(weight, grid);
  } else {
    return fail("checkpoint.unsupported_layout",
                cat(declared, " is not one that float weights are read with: tensor, channel, block or group"));
  }
  if (!matches) {
    readings->push_back(failed_reading(weight, kLayout, true,
                                       scale_shape_error(source, weight, *scale, grid, cat(declared, ": its scales"))));
    return;
  }
  readings->push_back(float_reading(source, weight, *scale, std::move(grid), rule, kLayout, true, bytes));
}

}  // namespace invar
