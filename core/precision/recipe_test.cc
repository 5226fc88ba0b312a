#include "core/precision/recipe.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

TEST(Recipe, NamesRoundTripAndUnknownOnesListTheChoices) {
  for (Recipe recipe : {Recipe::kFp32, Recipe::kBf16, Recipe::kFp8Tensor, Recipe::kFp8Block}) {
    auto back = recipe_from_name(recipe_name(recipe));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, recipe);
  }
  const auto unknown = recipe_from_name("fp9");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().reason(), "precision.unknown_recipe");
  EXPECT_NE(unknown.status().message().find("fp8_block"), std::string::npos);
}

TEST(Recipe, PerTensorUsesE5M2ForGradientsOnly) {
  const LinearPolicy policy = linear_policy(Recipe::kFp8Tensor);
  EXPECT_EQ(policy.forward_input.format, DType::kE4M3FN);
  EXPECT_EQ(policy.data_gradient_weight.format, DType::kE4M3FN);
  EXPECT_EQ(policy.weight_gradient_input.format, DType::kE4M3FN);
  EXPECT_EQ(policy.data_gradient_gradient.format, DType::kE5M2);
  EXPECT_EQ(policy.weight_gradient_gradient.format, DType::kE5M2);
  EXPECT_FALSE(policy.forward_input.power_of_two);
}

TEST(Recipe, BlocksRunAlongTheContraction) {
  const LinearPolicy policy = linear_policy(Recipe::kFp8Block);
  EXPECT_EQ(policy.forward_input.block_rows, 1);
  EXPECT_EQ(policy.forward_input.block_cols, 128);
  EXPECT_EQ(policy.weight_gradient_input.block_rows, 128);
  EXPECT_EQ(policy.weight_gradient_input.block_cols, 1);
  EXPECT_EQ(policy.data_gradient_gradient.format, DType::kE4M3FN);
  EXPECT_TRUE(policy.forward_weight.power_of_two);
}

TEST(PrecisionPlan, KeepsSensitiveLayersInBf16) {
  PrecisionPlan plan;
  plan.recipe = Recipe::kFp8Block;
  plan.keep_bf16 = {"*.o_proj.weight"};
  plan.first_layers_bf16 = 1;
  plan.last_layers_bf16 = 2;
  const LinearPolicy bf16 = linear_policy(Recipe::kBf16), fp8 = linear_policy(Recipe::kFp8Block);
  EXPECT_EQ(plan.linear(plan.recipe, "model.layers.0.mlp.up_proj.weight", 0, 8), bf16);
  EXPECT_EQ(plan.linear(plan.recipe, "model.layers.1.mlp.up_proj.weight", 1, 8), fp8);
  EXPECT_EQ(plan.linear(plan.recipe, "model.layers.1.self_attn.o_proj.weight", 1, 8), bf16);
  EXPECT_EQ(plan.linear(plan.recipe, "model.layers.5.mlp.up_proj.weight", 5, 8), fp8);
  EXPECT_EQ(plan.linear(plan.recipe, "model.layers.6.mlp.up_proj.weight", 6, 8), bf16);
  EXPECT_EQ(plan.linear(Recipe::kBf16, "model.layers.1.mlp.up_proj.weight", 1, 8), bf16);
}

TEST(PrecisionPlan, PerTensorScalesArePowersOfTwoWhenAsked) {
  PrecisionPlan plan;
  plan.recipe = Recipe::kFp8Tensor;
  EXPECT_FALSE(plan.linear(plan.recipe, "x", 0, 1).weight_gradient_gradient.power_of_two);
  plan.power_of_two_scales = true;
  EXPECT_TRUE(plan.linear(plan.recipe, "x", 0, 1).weight_gradient_gradient.power_of_two);
}

TEST(PrecisionPlan, ExceptionsNeverWidenAnFp32Run) {
  PrecisionPlan plan;
  plan.recipe = Recipe::kFp32;
  plan.keep_bf16 = {"*"};
  EXPECT_EQ(plan.linear(plan.recipe, "x", 0, 1), linear_policy(Recipe::kFp32));
}

}  // namespace
}  // namespace invar
