// FP8 products as they are emulated, against FP64 products of operands decoded here by the scalar codecs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/model/parameters.h"
#include "core/model/test_model.h"
#include "core/nn/linear.h"
#include "core/numerics/formats.h"

namespace invar {
namespace {

constexpr int64_t kTokens = 150;  // more than a block, and ragged

ModelShape ragged_shape() {
  ModelShape shape = testing::small_shape();
  shape.hidden = 160;
  shape.head_dim = 24;  // query, key, value: 96, 48 and 48 rows
  shape.intermediate = 200;
  shape.layers = 1;
  return shape;
}

float rounded_to_bf16(float value) { return f32_from_bf16(bf16_from_f32(value)); }

struct Values {
  int64_t rows = 0, cols = 0;
  std::vector<float> data;
  double at(int64_t r, int64_t c) const { return data[static_cast<size_t>(r * cols + c)]; }
};

// BF16 values with a spread of magnitudes.
Values make_values(int64_t rows, int64_t cols, uint64_t seed) {
  Values values{rows, cols, {}};
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float spread = std::exp2(4.0f * normal_at(seed, 1, static_cast<uint64_t>(i / 7)));
    values.data.push_back(rounded_to_bf16(spread * normal_at(seed, 0, static_cast<uint64_t>(i))));
  }
  return values;
}

// What an FP8 unit would multiply: codes times the scale of their tile.
std::vector<double> decoded(const Values& x, int64_t first_row, int64_t rows, DType format, int64_t block_rows,
                            int64_t block_cols, bool power_of_two) {
  std::vector<double> result(static_cast<size_t>(rows * x.cols));
  const float largest = decode(format, format_info(format).max_code);
  for (int64_t r0 = 0; r0 < rows; r0 += block_rows) {
    for (int64_t c0 = 0; c0 < x.cols; c0 += block_cols) {
      const int64_t r1 = std::min(rows, r0 + block_rows), c1 = std::min(x.cols, c0 + block_cols);
      float amax = 0;
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) amax = std::max(amax, std::abs(x.data[(first_row + r) * x.cols + c]));
      }
      float scale_inv = amax == 0 ? 1.0f : amax / largest;
      if (power_of_two) scale_inv = std::exp2(std::ceil(std::log2(scale_inv)));
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) {
          const uint8_t code = encode_fp8(format, x.data[(first_row + r) * x.cols + c] / scale_inv);
          result[static_cast<size_t>(r * x.cols + c)] = double{decode(format, code)} * scale_inv;
        }
      }
    }
  }
  return result;
}

class Fp8Products : public ::testing::TestWithParam<Recipe> {
 protected:
  void SetUp() override {
    shape_ = ragged_shape();
    options_ = testing::options_for(GetParam(), kTokens);
    device_ = testing::open_device();
    auto store = ParameterStore::create(*device_, arena_, shape_, options_);
    ASSERT_TRUE(store.ok()) << store.status().message();
    store_ = *std::move(store);
    for (const Parameter& parameter : store_->parameters()) {
      const int64_t cols = parameter.spec.shape.back();
      Values values = make_values(parameter.count / cols, cols, 100 + weights_.size());
      ASSERT_TRUE(
          device_->cast(parameter.working, parameter.dtype, values.data.data(), DType::kF32, parameter.count).ok());
      weights_.push_back(std::move(values));
    }
    context_ = std::make_unique<Context>(*device_, arena_, *store_, shape_.layers);
  }

  // Runs `pass` in memory planned for it.
  void run(const std::function<Status()>& pass) {
    const auto program = arena_.plan("pass", pass);
    ASSERT_TRUE(program.ok()) << program.status().message();
    auto memory = device_->allocate(static_cast<size_t>(arena_.bytes()));
    ASSERT_TRUE(memory.ok());
    arena_.bind(memory->data());
    ASSERT_TRUE(arena_.begin(*program).ok());
    const Status status = pass();
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(arena_.end().ok());
  }

  std::vector<uint16_t> as_bf16(const Values& values) {
    std::vector<uint16_t> codes;
    for (float value : values.data) codes.push_back(bf16_from_f32(value));
    return codes;
  }

  bool blocks() const { return GetParam() == Recipe::kFp8Block; }
  DType gradient_format() const { return blocks() ? DType::kE4M3FN : DType::kE5M2; }

  // The weight behind `members` as it enters a product: one scale for all, or tiles on each tensor.
  std::vector<double> decoded_weight(std::span<const size_t> members) {
    Values whole{0, weights_[members[0]].cols, {}};
    std::vector<double> result;
    for (size_t member : members) {
      const Values& part = weights_[member];
      whole.rows += part.rows;
      whole.data.insert(whole.data.end(), part.data.begin(), part.data.end());
      if (!blocks()) continue;
      const auto tiles = decoded(part, 0, part.rows, DType::kE4M3FN, 128, 128, true);
      result.insert(result.end(), tiles.begin(), tiles.end());
    }
    if (!blocks()) result = decoded(whole, 0, whole.rows, DType::kE4M3FN, whole.rows, whole.cols, false);
    return result;
  }
  // Tiles run along the contraction.
  std::vector<double> decoded_activation(const Values& x, DType format, bool contracts_rows) {
    if (!blocks()) return decoded(x, 0, x.rows, format, x.rows, x.cols, false);
    return decoded(x, 0, x.rows, format, contracts_rows ? 128 : 1, contracts_rows ? 1 : 128, true);
  }

  // out [rows, cols] = sum over inner of a(r, k) * b(k, c), within the error of an FP32 sum and two FP32 scales.
  template <typename A, typename B>
  void expect_product(const float* out, int64_t rows, int64_t cols, int64_t inner, const A& a, const B& b) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < inner; ++k) {
          sum += a(r, k) * b(k, c);
          magnitude += std::abs(a(r, k) * b(k, c));
        }
        const double bound = (static_cast<double>(inner) + 4) * 0x1p-24 * magnitude;
        ASSERT_NEAR(out[r * cols + c], sum, bound) << "row " << r << " column " << c;
      }
    }
  }

  ModelShape shape_;
  ModelOptions options_;
  Arena arena_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Context> context_;
  std::vector<Values> weights_;  // by parameter
};

TEST_P(Fp8Products, EqualProductsOfDecodedOperands) {
  const struct {
    WeightId weight;
    std::vector<size_t> members;
  } products[] = {
      {store_->layers()[0].attention.qkv, {2, 3, 4}},
      {store_->layers()[0].mlp.gate_up, {7, 8}},
      {store_->layers()[0].mlp.down, {9}},
  };
  for (const auto& product : products) {
    const std::vector<double> w = decoded_weight(product.members);
    const int64_t inputs = weights_[product.members[0]].cols;
    const int64_t outputs = static_cast<int64_t>(w.size()) / inputs;
    const Values x = make_values(kTokens, inputs, 1), dy = make_values(kTokens, outputs, 2);
    auto x_codes = as_bf16(x), dy_codes = as_bf16(dy);
    const Matrix x_view{x_codes.data(), DType::kBF16, kTokens, inputs, inputs};
    const Matrix dy_view{dy_codes.data(), DType::kBF16, kTokens, outputs, outputs};
    std::vector<float> y(static_cast<size_t>(kTokens * outputs)), dx(x.data.size());
    const Matrix y_view{y.data(), DType::kF32, kTokens, outputs, outputs};
    const Matrix dx_view{dx.data(), DType::kF32, kTokens, inputs, inputs};
    store_->begin_micro_batch(true, true);
    run([&]() -> Status {
      INVAR_TRY(linear_forward(*context_, product.weight, x_view, y_view));
      INVAR_TRY(linear_data_gradient(*context_, product.weight, dy_view, dx_view));
      return linear_weight_gradient(*context_, product.weight, dy_view, x_view);
    });

    const auto x_rows = decoded_activation(x, DType::kE4M3FN, false);
    expect_product(
        y.data(), kTokens, outputs, inputs, [&](int64_t r, int64_t k) { return x_rows[r * inputs + k]; },
        [&](int64_t k, int64_t c) { return w[c * inputs + k]; });
    const auto dy_rows = decoded_activation(dy, gradient_format(), false);
    expect_product(
        dx.data(), kTokens, inputs, outputs, [&](int64_t r, int64_t k) { return dy_rows[r * outputs + k]; },
        [&](int64_t k, int64_t c) { return w[k * inputs + c]; });
    const auto dy_cols = decoded_activation(dy, gradient_format(), true);
    const auto x_cols = decoded_activation(x, DType::kE4M3FN, true);
    expect_product(
        store_->parameters()[product.members[0]].gradient, outputs, inputs, kTokens,
        [&](int64_t r, int64_t k) { return dy_cols[k * outputs + r]; },
        [&](int64_t k, int64_t c) { return x_cols[k * inputs + c]; });
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Fp8Products, ::testing::Values(Recipe::kFp8Tensor, Recipe::kFp8Block),
                         [](const auto& info) { return std::string(recipe_name(info.param)); });

}  // namespace
}  // namespace invar
