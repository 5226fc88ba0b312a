#include "core/precision/recipe.h"

#include "core/base/glob.h"

namespace invar {
namespace {

constexpr int64_t kBlock = 128;

OperandFormat plain(DType dtype) { return {.format = dtype}; }

OperandFormat per_tensor(DType format) { return {.format = format, .granularity = Granularity::kTensor}; }

OperandFormat blocks(int64_t rows, int64_t cols) {
  return {.format = DType::kE4M3FN,
          .granularity = Granularity::kBlock,
          .block_rows = rows,
          .block_cols = cols,
          .power_of_two = true};
}

LinearPolicy uniform(const OperandFormat& operand) { return {operand, operand, operand, operand, operand, operand}; }

}  // namespace

std::string_view recipe_name(Recipe recipe) {
  switch (recipe) {
    case Recipe::kFp32: return "fp32";
    case Recipe::kBf16: return "bf16";
    case Recipe::kFp8Tensor: return "fp8_tensor";
    case Recipe::kFp8Block: return "fp8_block";
    case Recipe::kUnspecified: break;
  }
  return "?";
}

Result<Recipe> recipe_from_name(std::string_view name) {
  for (Recipe recipe : {Recipe::kFp32, Recipe::kBf16, Recipe::kFp8Tensor, Recipe::kFp8Block}) {
    if (name == recipe_name(recipe)) return recipe;
  }
  return Error(Code::kInvalidArgument, "precision.unknown_recipe",
               cat("recipe \"", name, "\" is not known; choose fp32, bf16, fp8_tensor or fp8_block"));
}

bool recipe_uses_fp8(Recipe recipe) { return recipe == Recipe::kFp8Tensor || recipe == Recipe::kFp8Block; }

DType activation_dtype(Recipe recipe) { return recipe == Recipe::kFp32 ? DType::kF32 : DType::kBF16; }

LinearPolicy linear_policy(Recipe recipe) {
  switch (recipe) {
    case Recipe::kFp32: return uniform(plain(DType::kF32));
    case Recipe::kFp8Tensor: {
      const OperandFormat values = per_tensor(DType::kE4M3FN), gradients = per_tensor(DType::kE5M2);
      return {values, values, gradients, values, gradients, values};
    }
    case Recipe::kFp8Block: {
      // Blocks run along the contraction: columns forward and for dx, tokens (rows) for dW.
      const OperandFormat row_blocks = blocks(1, kBlock), token_blocks = blocks(kBlock, 1),
                          weight = blocks(kBlock, kBlock);
      return {row_blocks, weight, row_blocks, weight, token_blocks, token_blocks};
    }
    case Recipe::kBf16:
    case Recipe::kUnspecified: break;
  }
  return uniform(plain(DType::kBF16));
}

LinearPolicy PrecisionPlan::linear(Recipe in_force, std::string_view weight_name, int64_t layer, int64_t layers) const {
  if (recipe_uses_fp8(in_force)) {
    if (layer < first_layers_bf16 || layer >= layers - last_layers_bf16) return linear_policy(Recipe::kBf16);
    for (const std::string& pattern : keep_bf16) {
      if (glob_match(pattern, weight_name)) return linear_policy(Recipe::kBf16);
    }
  }
  LinearPolicy policy = linear_policy(in_force);
  if (policy.quantized() && power_of_two_scales) {
    for (OperandFormat* operand :
         {&policy.forward_input, &policy.forward_weight, &policy.data_gradient_gradient, &policy.data_gradient_weight,
          &policy.weight_gradient_gradient, &policy.weight_gradient_input}) {
      operand->power_of_two = true;
    }
  }
  return policy;
}

}  // namespace invar
