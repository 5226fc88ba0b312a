// Recipes: in which format each operand of each matrix product runs.
//
//   PrecisionPlan plan;
//   plan.recipe = Recipe::kFp8Block;
//   plan.keep_bf16 = {"*.o_proj.weight"};
//   LinearPolicy policy = plan.linear(plan.recipe, "model.layers.3.mlp.up_proj.weight", 3, 30);
//
// A linear layer y = x W^T has three products: forward (x, W), data gradient (dy, W) and weight gradient
// (dy^T, x). Each operand is quantised from the high-precision source for the product it enters; a transposed
// copy is never made from a quantised one. Everything else (embedding, output head, norms, rope, attention core,
// softmax, loss) stays in the activation format: F32 for kFp32, BF16 otherwise.
// Thread rule: values, no sharing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/numerics/dtype.h"

namespace invar {

// Numbers are stable: they are written to checkpoints.
enum class Recipe : int32_t {
  kUnspecified = 0,
  kFp32 = 1,
  kBf16 = 2,       // BF16 operands, FP32 accumulation, FP32 masters
  kFp8Tensor = 3,  // E4M3 forward, E5M2 gradients, one scale a tensor from its own amax (current scaling)
  kFp8Block = 4,   // E4M3 both ways, 1x128 along the contraction, weights 128x128, power-of-two scales
};

std::string_view recipe_name(Recipe recipe);  // "fp32", "bf16", "fp8_tensor", "fp8_block"; "?" otherwise
Result<Recipe> recipe_from_name(std::string_view name);
bool recipe_uses_fp8(Recipe recipe);
// The storage format of activations and of the working weights: F32 or BF16.
DType activation_dtype(Recipe recipe);

// The part of an operand that shares one scale. Numbers equal INVAR_SCALE_* of the backend table.
enum class Granularity : int32_t { kNone = 0, kTensor = 1, kRow = 2, kBlock = 3 };

// One operand as it lies in memory ([rows, cols], row-major), before any transposition by the product.
struct OperandFormat {
  DType format = DType::kBF16;                   // kF32 and kBF16: not quantised
  Granularity granularity = Granularity::kNone;  // kNone with kF32, kBF16
  int64_t block_rows = 0, block_cols = 0;        // kBlock only; ragged at the ends
  bool power_of_two = false;                     // scales are rounded to powers of two and fold into the operand
  float fixed_scale_inv = 0;                     // kTensor: the scale to take instead of the operand's own; 0: its own

  bool quantized() const { return is_fp8(format); }
  bool operator==(const OperandFormat&) const = default;
};

struct LinearPolicy {
  OperandFormat forward_input, forward_weight;                    // x [tokens, in], W [out, in]
  OperandFormat data_gradient_gradient, data_gradient_weight;     // dy [tokens, out], W [out, in]
  OperandFormat weight_gradient_gradient, weight_gradient_input;  // dy [tokens, out], x [tokens, in]

  bool quantized() const { return forward_input.quantized(); }
  bool operator==(const LinearPolicy&) const = default;
};

// Every operand in `recipe`'s formats, with no exception for sensitive layers.
LinearPolicy linear_policy(Recipe recipe);

// A recipe with its exceptions.
struct PrecisionPlan {
  Recipe recipe = Recipe::kBf16;
  std::vector<std::string> keep_bf16;  // patterns (base/glob.h) over weight names that never run in FP8
  int64_t first_layers_bf16 = 0, last_layers_bf16 = 0;
  bool power_of_two_scales = false;  // of per-tensor scales; those of blocks always are

  // The policy of the linear layer whose weight is `weight_name`, in decoder layer `layer` of `layers`, while
  // `in_force` is the recipe of this step (the ladder may have left `recipe`).
  LinearPolicy linear(Recipe in_force, std::string_view weight_name, int64_t layer, int64_t layers) const;
};

}  // namespace invar
