// The 8-bit formats against what torch decoded from every code (tests/cases/codes-*).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/numerics/codec.h"

namespace invar {
namespace {

struct StoredTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<char> bytes;
};

// Tensors of a small, well-formed safetensors file.
std::map<std::string, StoredTensor> read_tensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> content((std::istreambuf_iterator<char>(file)), {});
  std::map<std::string, StoredTensor> tensors;
  uint64_t header_size = 0;
  if (content.size() < sizeof header_size) return tensors;
  std::memcpy(&header_size, content.data(), sizeof header_size);
  const char* data = content.data() + sizeof header_size + header_size;
  const auto header = nlohmann::json::parse(content.data() + sizeof header_size, data);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    tensors[name] = {entry["dtype"], entry["shape"], {data + begin, data + end}};
  }
  return tensors;
}

class TorchCodes : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, TorchCodes, testing::Values("e4m3fn", "e4m3fnuz", "e5m2", "e8m0"),
                         [](const auto& info) { return info.param; });

// Each row holds every code; rows of the FP8 cases have a scale each, the first one 1.
TEST_P(TorchCodes, EveryCodeConvertsAsTorchDoes) {
  const std::string folder = "tests/cases/codes-" + GetParam() + "/";
  const auto description = nlohmann::json::parse(std::ifstream(folder + "case.json"));
  auto input = read_tensors(folder + "input/model.safetensors");
  const StoredTensor codes = input["codes.weight"], scales = input["codes.weight_scale"];
  const StoredTensor expected = read_tensors(folder + "expected.safetensors")["codes.weight"];
  ASSERT_EQ(codes.dtype, description["header_dtype"].get<std::string>());
  ASSERT_EQ(expected.dtype, "BF16");
  ASSERT_EQ(codes.shape.size(), 2u);
  const int64_t rows = codes.shape[0], cols = codes.shape[1];
  ASSERT_EQ(static_cast<int64_t>(expected.bytes.size()), 2 * rows * cols);
  const DType dtype = dtype_from_name(codes.dtype);
  std::vector<float> row_scales(static_cast<size_t>(rows), 1.0f);
  if (is_fp8(dtype)) {
    ASSERT_EQ(scales.dtype, "F32");
    ASSERT_EQ(static_cast<int64_t>(scales.bytes.size()), 4 * rows);
    std::memcpy(row_scales.data(), scales.bytes.data(), scales.bytes.size());
  }
  std::vector<uint16_t> torch_values(static_cast<size_t>(rows * cols)), row_out(static_cast<size_t>(cols));
  std::memcpy(torch_values.data(), expected.bytes.data(), expected.bytes.size());
  for (CpuLevel level : usable_cpu_levels()) {
    for (int64_t row = 0; row < rows; ++row) {
      const auto* row_codes = reinterpret_cast<const uint8_t*>(codes.bytes.data()) + row * cols;
      if (is_fp8(dtype)) {
        convert_fp8_to_bf16(dtype, row_codes, row_out.data(), cols, row_scales[row], Store::kCached, level);
      } else {
        std::vector<float> values(static_cast<size_t>(cols));
        ASSERT_TRUE(convert_to_f32(dtype, row_codes, values.data(), cols, level));
        convert_f32_to_bf16(values.data(), row_out.data(), cols, level);
      }
      for (int64_t col = 0; col < cols; ++col) {
        const uint16_t torch_value = torch_values[row * cols + col];
        if (std::isnan(f32_from_bf16(torch_value))) {
          EXPECT_TRUE(std::isnan(f32_from_bf16(row_out[col]))) << "code " << int{row_codes[col]};
        } else {
          EXPECT_EQ(row_out[col], torch_value) << "code " << int{row_codes[col]} << " scale " << row_scales[row];
        }
      }
    }
  }
}

}  // namespace
}  // namespace invar
