// Blocks of rows and columns with one scale each, stored as "<weight>_scale_inv" (DeepSeek-V3 and V3.1, Qwen3-FP8,
// transformers' fine-grained FP8, MXFP8 with U8 scales; fused experts are 3-D and may say "_scales_inv").
// The name is the inverse of the quantiser's scale: it multiplies. The grid is rounded up: the last block of a row or
// column may be shorter. weight_block_size null means one scale for the whole tensor.
#include "core/checkpoint/rules/rules.h"

namespace invar {
namespace {

constexpr char kLayout[] = "fp8-block-scale-inv";
constexpr BlockSize kUsualBlock = {128, 128};

bool fits(const TensorInfo& weight, const TensorInfo& scale, const ScaleGrid& grid) {
  if (scale.shape == grid_shape(weight, grid)) return true;
  // A grid of one scale may be stored as [], [1] or [1, 1].
  return is_single(scale) && grid.matrices == 1 && grid.grid_rows == 1 && grid.grid_cols == 1;
}

// Block sizes by powers of two that would give the stored grid, for the question to the user. Never used to convert.
std::string sizes_that_fit(const TensorInfo& weight, const TensorInfo& scale) {
  std::string text;
  int found = 0;
  for (int64_t rows = 1; rows <= 4096; rows *= 2) {
    for (int64_t cols = 1; cols <= 4096; cols *= 2) {
      if (scale.shape != grid_shape(weight, block_grid(weight, {rows, cols}))) continue;
      if (++found > 4) return text + ", ...";
      text += cat(found > 1 ? ", " : "", rows, "x", cols);
    }
  }
  return text;
}

Status undeclared(const LayoutSource& source, const TensorInfo& weight, const TensorInfo& scale) {
  const std::string sizes = sizes_that_fit(weight, scale);
  std::string rows;
  if (scale.shape == grid_shape(weight, row_grid(weight)))
    rows = "; one scale a row would fit: --assume block=1x" + std::to_string(weight.shape.back());
  return Error(Code::kDataLoss, "checkpoint.ambiguous_scale",
               cat(source.label(scale), " has shape ", shape_text(scale.shape), " for a weight of ",
                   shape_text(weight.shape), " and no weight_block_size is declared; the usual 128x128 would need ",
                   shape_text(grid_shape(weight, block_grid(weight, kUsualBlock))),
                   "; state the block size with --assume block=ROWSxCOLS",
                   sizes.empty() ? std::string() : cat(" (sizes that fit: ", sizes, ")"), rows));
}

}  // namespace

void block_scale_inv_rule(const LayoutSource& source, const TensorInfo& weight, std::vector<Reading>* readings) {
  if (!is_fp8(weight.dtype)) return;
  const TensorInfo* scale = source.folder.find(cat(weight.name, "_scale_inv"));
  if (scale == nullptr) scale = source.folder.find(cat(weight.name, "_scales_inv"));
  if (scale == nullptr) return;
  const auto block = source.block();
  const bool bytes = source.declared.scale_format == "ue8m0";
  if (block) {
    const ScaleGrid grid = block_grid(weight, *block);
    if (!fits(weight, *scale, grid)) {
      readings->push_back(failed_reading(
          weight, kLayout, true,
          scale_shape_error(source, weight, *scale, grid, cat("declared blocks of ", block->rows, "x", block->cols))));
      return;
    }
    readings->push_back(float_reading(source, weight, *scale, grid, "block_scale", kLayout, true, bytes));
    return;
  }
  if (is_single(*scale)) {
    readings->push_back(float_reading(source, weight, *scale, tensor_grid(weight), "tensor_scale",
                                      "fp8-tensor-scale-inv", source.declared.method == "fp8", bytes));
    return;
  }
  const ScaleGrid usual = block_grid(weight, kUsualBlock);
  if (!fits(weight, *scale, usual)) {
    readings->push_back(failed_reading(weight, kLayout, false, undeclared(source, weight, *scale)));
    return;
  }
  Reading reading = float_reading(source, weight, *scale, usual, "block_scale", kLayout, false, bytes);
  reading.findings.push_back(
      {"checkpoint.undeclared_block",
       cat(source.label(*scale),
           ": no weight_block_size is declared; 128x128 is used, which its name usually means and its shape fits")});
  readings->push_back(std::move(reading));
}

void renamed_block_rule(const LayoutSource& source, const TensorInfo& weight, std::vector<Reading>* readings) {
  constexpr char kRenamed[] = "fp8-block-weight-scale";
  const auto block = source.block();
  if (!is_fp8(weight.dtype) || !block || source.declared.method == "compressed-tensors") return;
  const TensorInfo* scale = source.folder.find(cat(weight.name, "_scale"));
  if (scale == nullptr) return;
  const ScaleGrid grid = block_grid(weight, *block);
  if (!fits(weight, *scale, grid)) {
    readings->push_back(failed_reading(
        weight, kRenamed, true,
        scale_shape_error(source, weight, *scale, grid, cat("declared blocks of ", block->rows, "x", block->cols))));
    return;
  }
  readings->push_back(float_reading(source, weight, *scale, grid, "block_scale", kRenamed, true,
                                    source.declared.scale_format == "ue8m0"));
}

}  // namespace invar
