#include "core/tensor/tensor.h"

#include <gtest/gtest.h>

#include <limits>

namespace invar {
namespace {

TEST(Tensor, CountsElementsAndBytes) {
  const auto tensor = Tensor::view(DType::kE2M1, {3, 5}, nullptr);
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->elements(), 15);
  EXPECT_EQ(tensor->bytes(), 8);
  EXPECT_EQ(tensor->rows(), 3);
  EXPECT_EQ(Tensor::view(DType::kF32, {}, nullptr)->elements(), 1);
  EXPECT_EQ(Tensor::view(DType::kF32, {4, 0}, nullptr)->rows(), 0);
}

TEST(Tensor, RefusesImpossibleShapes) {
  EXPECT_EQ(Tensor::view(DType::kF32, {-1}, nullptr).status().reason(), "tensor.shape");
  EXPECT_EQ(Tensor::view(DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}, nullptr).status().reason(), "tensor.shape");
  EXPECT_EQ(Tensor::view(DType::kF32, std::vector<int64_t>(9, 1), nullptr).status().reason(), "tensor.shape");
  EXPECT_EQ(Tensor::view(static_cast<DType>(99), {1}, nullptr).status().reason(), "tensor.dtype");
  EXPECT_EQ(Tensor::view(DType::kF32, {0, int64_t{1} << 40}, nullptr)->elements(), 0);
}

TEST(Tensor, CopiesShareTheMemoryAndTheLastOneReleasesIt) {
  int released = 0;
  float memory[4] = {};
  {
    const Tensor tensor = *Tensor::view(DType::kF32, {4}, std::shared_ptr<void>(memory, [&](void*) { ++released; }));
    const Tensor copy = tensor;
    EXPECT_EQ(copy.data(), memory);
    EXPECT_EQ(copy.memory().use_count(), 2);
  }
  EXPECT_EQ(released, 1);
}

TEST(Tensor, QuantizedMeansThatScalesAreThere) {
  Tensor tensor = *Tensor::view(DType::kE4M3FN, {2, 2}, nullptr);
  EXPECT_FALSE(tensor.quantized());
  tensor.set_scales({std::make_shared<float>(0.5f), 1, 1, 2, 2});
  EXPECT_TRUE(tensor.quantized());
  EXPECT_EQ(*tensor.scales().scale_inv, 0.5f);
}

}  // namespace
}  // namespace invar
