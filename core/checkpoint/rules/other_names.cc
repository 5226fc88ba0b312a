// FP8 weights whose scales have other names: diffusion tools (scale_weight), Mistral's own format (qscale_weight),
// TorchAO (_weight_qdata and _weight_scale, the block in the file's metadata), DeepSeek-V4 (E8M0 in .scale), ModelOpt's
// block scales of rank 4 and MXFP8 with U8 scales.
#include <nlohmann/json.hpp>

#include "core/checkpoint/rules/rules.h"

namespace invar {
namespace {

using Json = nlohmann::json;

const TensorInfo* sibling(const LayoutSource& source, const TensorInfo& weight, std::string_view ending) {
  return source.folder.find(cat(module_of(weight.name), ending));
}

// [rows, cols] of the block TorchAO's metadata declares for the weight `name` of `file`; nothing when it does not.
std::optional<BlockSize> torchao_block(const LayoutSource& source, const TensorInfo& tensor, const std::string& name) {
  const auto& metadata = source.folder.files()[static_cast<size_t>(tensor.file)]->metadata();
  for (const auto& [key, text] : metadata) {
    if (key != name) continue;
    const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("_data") || !json["_data"].is_object()) return {};
    const auto block = json["_data"].find("block_size");
    if (block == json["_data"].end() || !block->is_array() || block->size() != 2) return {};
    if (!(*block)[0].is_number_unsigned() || !(*block)[1].is_number_unsigned()) return {};
    const int64_t rows = (*block)[0].get<int64_t>(), cols = (*block)[1].get<int64_t>();
    if (rows < 1 || cols < 1) return {};
    return BlockSize{rows, cols};
  }
  return {};
}

}  // namespace

void scale_weight_rule(const LayoutSource& source, const TensorInfo& weight, std::vector<Reading>* readings) {
  if (!is_fp8(weight.dtype)) return;
  const std::string_view last = std::string_view(weight.name).substr(weight.name.rfind('.') + 1);
  if (last == "scaled_fp8" && weight.shape.size() == 1 && weight.shape[0] <= 2) {
    Reading marker = failed_reading(weight, "scaled-fp8", true, {});
    marker.marker = true;  // says which format the others have; holds nothing
    readings->push_back(std::move(marker));
    return;
  }
  if (!weight.name.ends_with(".weight")) return;
  const std::pair<const char*, const char*> names[] = {{".scale_weight", "scaled-fp8"},
                                                       {".qscale_weight", "mistral-qscale"}};
  for (const auto& [ending, layout] : names) {
    const TensorInfo* scale = sibling(source, weight, ending);
    if (scale == nullptr) continue;
    if (!is_single(*scale)) {
      readings->push_back(
          failed_reading(weight, layout, true,
                         scale_shape_error(source, weight, *scale, tensor_grid(weight), "one scale for a tensor")));
      continue;
    }
    readings->push_back(
        float_reading(source, weight, *scale, tensor_grid(weight), "tensor_scale", layout, true, false));
  }
}

void torchao_rule(const LayoutSource& source, const TensorInfo& codes, std::vector<Reading>* readings) {
  constexpr std::string_view kCodes = "_weight_qdata";
  constexpr char kLayout[] = "torchao-float8";
  if (!is_fp8(codes.dtype) || !codes.name.ends_with(kCodes)) return;
  const std::string stem = codes.name.substr(0, codes.name.size() - kCodes.size());
  const TensorInfo* scale = source.folder.find(stem + "_weight_scale");
  if (scale == nullptr) return;
  const std::string name = stem + "weight";
  std::optional<BlockSize> block = torchao_block(source, codes, name);
  if (!block) block = source.block();
  if (!block) {
    readings->push_back(failed_reading(codes, kLayout, true,
                                       Error(Code::kDataLoss, "checkpoint.ambiguous_scale",
                                             cat(source.label(codes), ": the file's metadata gives no block_size for ",
                                                 in_quotes(name), "; state --assume block=ROWSxCOLS"))));
    return;
  }
  const ScaleGrid grid = block_grid(codes, *block);
  if (scale->shape != grid_shape(codes, grid) && !(is_single(*scale) && grid.grid_rows * grid.grid_cols == 1)) {
    readings->push_back(failed_reading(
        codes, kLayout, true,
        scale_shape_error(source, codes, *scale, grid, cat("declared blocks of ", block->rows, "x", block->cols))));
    return;
  }
  const bool rows = grid.block_rows == 1 && grid.grid_cols == 1;
  Reading reading =
      float_reading(source, codes, *scale, grid, rows ? "row_scale" : "block_scale", kLayout, true, false);
  reading.plan.name = name;
  readings->push_back(std::move(reading));
}

void dot_scale_rule(const LayoutSource& source, const TensorInfo& weight, std::vector<Reading>* readings) {
  constexpr char kLayout[] = "deepseek-v4";
  if (!is_fp8(weight.dtype) || !weight.name.ends_with(".weight")) return;
  const TensorInfo* scale = sibling(source, weight, ".scale");
  if (scale == nullptr) return;
  const BlockSize block = source.block().value_or(BlockSize{128, 128});
  const ScaleGrid grid = block_grid(weight, block);
  if (scale->shape != grid_shape(weight, grid)) {
    readings->push_back(failed_reading(
        weight, kLayout, true,
        scale_shape_error(source, weight, *scale, grid, cat("blocks of ", block.rows, "x", block.cols))));
    return;
  }
  readings->push_back(float_reading(source, weight, *scale, grid, "block_scale", kLayout, true, true));
}

void modelopt_block_rule(const LayoutSource& source, const TensorInfo& weight, std::vector<Reading>* readings) {
  if (!is_fp8(weight.dtype) || weight.shape.size() != 2 || source.declared.method != "modelopt") return;
  const TensorInfo* scale = source.folder.find(cat(weight.name, "_scale"));
  if (scale == nullptr) return;
  // [rows/128, 1, cols/128, 1]
  const ScaleGrid blocks = block_grid(weight, {128, 128});
  if (scale->shape == std::vector<int64_t>{blocks.grid_rows, 1, blocks.grid_cols, 1}) {
    readings->push_back(
        float_reading(source, weight, *scale, blocks, "block_scale", "modelopt-fp8-block", true, false));
    return;
  }
  const ScaleGrid groups = block_grid(weight, {1, 32});
  if (scale->dtype == DType::kU8 && scale->shape == grid_shape(weight, groups)) {
    readings->push_back(float_reading(source, weight, *scale, groups, "block_scale", "mxfp8", true, true));
  }
}

}  // namespace invar
