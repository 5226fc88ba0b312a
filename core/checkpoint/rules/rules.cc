#include "core/checkpoint/rules/rules.h"

namespace invar {

const std::vector<LayoutRule>& layout_rules() {
  static const std::vector<LayoutRule> rules = {
      block_scale_inv_rule,      // DeepSeek, Qwen3, transformers: weight_scale_inv
      compressed_float_rule,     // compressed-tensors float-quantized and mxfp8
      renamed_block_rule,        // block grids stored as weight_scale
      tensor_scale_rule,         // AutoFP8, FNUZ, ModelOpt FP8: one weight_scale
      row_scale_rule,            // FBGEMM, ModelOpt per channel: one weight_scale a row
      scale_weight_rule,         // diffusion tools and Mistral: scale_weight, qscale_weight
      torchao_rule,              // _weight_qdata with its block in the metadata
      dot_scale_rule,            // DeepSeek-V4: E8M0 .scale
      modelopt_block_rule,       // rank-4 block scales, MXFP8
      packed_fp4_rule,           // MXFP4 and NVFP4
      power_of_two_values_rule,  // E8M0 as values
      gguf_block_rule,           // GGUF: Q4_0 ... NVFP4
      bitsandbytes_rule,         // NF4, FP4 and INT8
      compressed_integer_rule,   // compressed-tensors pack-quantized and int-quantized
      gpt_oss_rule,              // MXFP4 experts: _blocks and _scales
      unsupported_rule,          // known, not read yet
  };
  return rules;
}

std::string LayoutSource::label(const TensorInfo& tensor) const {
  return cat(join_path(folder.path(), folder.file_name(tensor)), ": tensor ", in_quotes(tensor.name));
}

std::optional<BlockSize> LayoutSource::block() const {
  const std::string stated = assumed("block");  // checked by classify()
  const auto cross = stated.find('x');
  if (cross != std::string::npos)
    return BlockSize{std::stoll(stated.substr(0, cross)), std::stoll(stated.substr(cross + 1))};
  return declared.block;
}

std::string_view module_of(std::string_view weight_name) {
  constexpr std::string_view kWeight = ".weight";
  if (weight_name.ends_with(kWeight)) weight_name.remove_suffix(kWeight.size());
  return weight_name;
}

std::vector<std::string> scale_names(std::string_view name) {
  std::vector<std::string> names;
  for (const char* ending : {"_scale_inv", "_scale", "_scales_inv"}) names.push_back(cat(name, ending));
  if (name.ends_with(".weight")) {
    for (const char* ending : {".scale_weight", ".qscale_weight", ".scale"})
      names.push_back(cat(module_of(name), ending));
  }
  return names;
}

Result<DType> scale_dtype(const LayoutSource& source, const TensorInfo& scale, bool power_of_two_bytes) {
  switch (scale.dtype) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
    case DType::kF64:
    case DType::kE8M0: return scale.dtype;
    case DType::kU8:
      if (power_of_two_bytes || source.assumed("u8_scales") == "e8m0") return DType::kE8M0;
      return Error(
          Code::kDataLoss, "checkpoint.ambiguous_scale",
          cat(source.label(scale), " is a scale stored as U8: exponents of powers of two or plain numbers; state ",
              "--assume u8_scales=e8m0 when they are exponents"));
    default:
      return Error(Code::kDataLoss, "checkpoint.scale_shape",
                   cat(source.label(scale), " is a scale of dtype ", name_of(scale.dtype),
                       "; expected F32, BF16, F16, F64, F8_E8M0 or U8"));
  }
}

namespace {

ScaleGrid whole(const TensorInfo& weight) {
  ScaleGrid grid;
  const auto& shape = weight.shape;
  if (!shape.empty()) grid.cols = shape.back();
  if (shape.size() >= 2) grid.rows = shape[shape.size() - 2];
  for (size_t i = 0; i + 2 < shape.size(); ++i) grid.matrices *= shape[i];
  return grid;
}

int64_t pieces(int64_t size, int64_t block) { return size / block + (size % block != 0 ? 1 : 0); }

}  // namespace

ScaleGrid tensor_grid(const TensorInfo& weight) {
  ScaleGrid grid = whole(weight);
  grid.block_rows = std::max<int64_t>(1, grid.rows);
  grid.block_cols = std::max<int64_t>(1, grid.cols);
  grid.shared = true;
  return grid;
}

ScaleGrid row_grid(const TensorInfo& weight) {
  ScaleGrid grid = whole(weight);
  grid.block_cols = std::max<int64_t>(1, grid.cols);
  grid.grid_rows = grid.rows;
  return grid;
}

ScaleGrid block_grid(const TensorInfo& weight, BlockSize block) {
  ScaleGrid grid = whole(weight);
  grid.block_rows = block.rows;
  grid.block_cols = block.cols;
  grid.grid_rows = pieces(grid.rows, block.rows);
  grid.grid_cols = pieces(grid.cols, block.cols);
  return grid;
}

std::vector<int64_t> grid_shape(const TensorInfo& weight, const ScaleGrid& grid) {
  std::vector<int64_t> shape;
  if (!grid.shared) {
    for (size_t i = 0; i + 2 < weight.shape.size(); ++i) shape.push_back(weight.shape[i]);
  }
  if (weight.shape.size() >= 2) shape.push_back(grid.grid_rows);
  shape.push_back(grid.grid_cols);
  return shape;
}

bool is_single(const TensorInfo& scale) { return element_count(scale.shape) == 1; }

Reading float_reading(const LayoutSource& source, const TensorInfo& weight, const TensorInfo& scale, ScaleGrid grid,
                      std::string rule, std::string layout, bool declared, bool power_of_two_bytes) {
  Reading reading;
  reading.declared = declared;
  reading.plan.source = &weight;
  reading.plan.rule = std::move(rule);
  reading.plan.layout = std::move(layout);
  reading.plan.coding = Coding::kFloat;
  reading.plan.code_dtype = weight.dtype;
  reading.plan.name = weight.name;
  reading.plan.shape = weight.shape;
  const auto dtype = scale_dtype(source, scale, power_of_two_bytes);
  if (!dtype.ok()) {
    reading.status = dtype.status();
    return reading;
  }
  reading.plan.scales.push_back({&scale, *dtype, source.assumed("scale") == "divides", std::move(grid)});
  return reading;
}

Reading decoder_reading(const TensorInfo& weight, std::string rule, std::string layout, std::string name,
                        std::vector<int64_t> shape, std::shared_ptr<const Decoder> decoder) {
  Reading reading;
  reading.declared = true;
  reading.plan.source = &weight;
  reading.plan.rule = std::move(rule);
  reading.plan.layout = std::move(layout);
  reading.plan.coding = Coding::kDecoder;
  reading.plan.name = std::move(name);
  reading.plan.shape = std::move(shape);
  reading.plan.decoder = std::move(decoder);
  return reading;
}

Reading failed_reading(const TensorInfo& weight, std::string layout, bool declared, Status status) {
  Reading reading;
  reading.plan.source = &weight;
  reading.plan.layout = std::move(layout);
  reading.declared = declared;
  reading.status = std::move(status);
  return reading;
}

Status scale_shape_error(const LayoutSource& source, const TensorInfo& weight, const TensorInfo& scale,
                         const ScaleGrid& grid, std::string_view why) {
  return Error(Code::kDataLoss, "checkpoint.scale_shape",
               cat(source.label(scale), " has shape ", shape_text(scale.shape), "; ", why, " on weight ",
                   shape_text(weight.shape), " need ", shape_text(grid_shape(weight, grid))));
}

}  // namespace invar
