#include "core/device/tensor_operations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace invar {
namespace {

class TensorOperations : public testing::Test {
 protected:
  TensorOperations() : device(Device::open("cpu", std::make_shared<ThreadPool>(2)).value()) {}

  Tensor floats(std::vector<int64_t> shape, float (*value)(int64_t)) {
    Tensor tensor = make_tensor(*device, DType::kF32, std::move(shape)).value();
    for (int64_t i = 0; i < tensor.elements(); ++i) static_cast<float*>(tensor.data())[i] = value(i);
    return tensor;
  }
  static float at(const Tensor& tensor, int64_t i) { return static_cast<const float*>(tensor.data())[i]; }

  std::shared_ptr<Device> device;
};

TEST_F(TensorOperations, CastRoundsToNearestEvenAndFp8Saturates) {
  const Tensor x = floats({3}, [](int64_t i) { return i == 0 ? 1.00390625f : i == 1 ? 500.0f : -0.0f; });
  const auto bf16 = cast_tensor(*device, x, DType::kBF16);
  ASSERT_TRUE(bf16.ok());
  uint16_t bits[3];
  std::memcpy(bits, bf16->data(), sizeof bits);
  EXPECT_EQ(bits[0], 0x3F80);  // a tie goes to the even neighbour
  EXPECT_EQ(bits[2], 0x8000);
  const auto fp8 = cast_tensor(*device, x, DType::kE4M3FN);
  ASSERT_TRUE(fp8.ok());
  EXPECT_EQ(static_cast<const uint8_t*>(fp8->data())[1], 0x7E);  // 448
  EXPECT_EQ(cast_tensor(*device, x, DType::kI32).status().reason(), "tensor.dtype");
}

// The largest element of each block is a code exactly; every other one is off by at most half a step: 1/16 of itself,
// or half of the smallest code times the scale.
TEST_F(TensorOperations, QuantiseAndDequantiseAreClosePerBlock) {
  const Tensor x =
      floats({130, 257}, [](int64_t i) { return std::sin(static_cast<float>(i)) * (i % 7 == 0 ? 100 : 1); });
  for (const int granularity : {INVAR_SCALE_PER_TENSOR, INVAR_SCALE_PER_ROW, INVAR_SCALE_BLOCK}) {
    const auto codes = quantize_tensor(*device, x, {.granularity = granularity});
    ASSERT_TRUE(codes.ok()) << codes.status().message();
    const auto& scales = codes->scales();
    EXPECT_EQ(scales.rows * scales.cols, granularity == INVAR_SCALE_PER_TENSOR ? 1
                                         : granularity == INVAR_SCALE_PER_ROW  ? 130
                                                                               : 6);
    const auto back = dequantize_tensor(*device, *codes, DType::kF32);
    ASSERT_TRUE(back.ok());
    for (int64_t i = 0; i < x.elements(); ++i) {
      const int64_t row = i / 257, col = i % 257;
      const float scale = scales.scale_inv.get()[row / scales.block_rows * scales.cols + col / scales.block_cols];
      EXPECT_NEAR(at(*back, i), at(x, i), std::max(std::fabs(at(x, i)) / 16, scale * 0x1p-10f) * 1.0001f) << i;
    }
  }
  EXPECT_EQ(dequantize_tensor(*device, x, DType::kF32).status().reason(), "tensor.not_quantized");
  EXPECT_EQ(quantize_tensor(*device, x, {.granularity = 9}).status().reason(), "tensor.granularity");
  EXPECT_EQ(quantize_tensor(*device, x, {.block_rows = 0}).status().reason(), "tensor.granularity");
}

TEST_F(TensorOperations, MatmulInEveryOrientation) {
  const Tensor a = floats({2, 3}, [](int64_t i) { return static_cast<float>(i + 1); });
  const Tensor b = floats({3, 2}, [](int64_t i) { return static_cast<float>(i + 1); });
  const auto plain = matmul_tensors(*device, a, false, b, false, DType::kF32);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  const float expected[] = {22, 28, 49, 64};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(at(*plain, i), expected[i]);
  const auto both = matmul_tensors(*device, b, true, a, true, DType::kF32);  // (a b)^T
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(at(*both, 1), 49);
  EXPECT_EQ(at(*both, 2), 28);
  EXPECT_EQ(matmul_tensors(*device, a, false, a, false, DType::kF32).status().message(),
            "matmul: [2, 3] by [2, 3]: inner sizes 3 and 2 differ");
  EXPECT_EQ(matmul_tensors(*device, a, false, b, false, DType::kF16).status().reason(), "tensor.dtype");
}

}  // namespace
}  // namespace invar
