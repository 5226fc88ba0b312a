// Small checkpoints made in memory for tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/rng.h"
#include "core/container/safetensors_writer.h"
#include "core/numerics/formats.h"
#include "core/numerics/normal.h"

namespace invar {

inline constexpr char kBlockConfig[] =
    R"({"model_type": "llama", "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8", )"
    R"("activation_scheme": "dynamic", "weight_block_size": [16, 16]}})";

class TestCheckpoint {
 public:
  TestCheckpoint& add(std::string name, DType dtype, std::vector<int64_t> shape, std::vector<std::byte> bytes) {
    tensors_.push_back({std::move(name), dtype, std::move(shape)});
    bytes_.push_back(std::move(bytes));
    return *this;
  }
  TestCheckpoint& add_f32(std::string name, std::vector<int64_t> shape, const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return add(std::move(name), DType::kF32, std::move(shape), std::move(bytes));
  }
  TestCheckpoint& add_bf16(std::string name, std::vector<int64_t> shape, uint64_t seed) {
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < element_count(shape); ++i) {
      const uint16_t bits = bf16_from_f32(0.02f * normal_at(seed, 1, static_cast<uint64_t>(i)));
      bytes.push_back(static_cast<std::byte>(bits & 0xFF));
      bytes.push_back(static_cast<std::byte>(bits >> 8));
    }
    return add(std::move(name), DType::kBF16, std::move(shape), std::move(bytes));
  }
  // Finite codes of N(0, 60).
  TestCheckpoint& add_codes(std::string name, DType dtype, std::vector<int64_t> shape, uint64_t seed) {
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < element_count(shape); ++i) {
      bytes.push_back(static_cast<std::byte>(encode_fp8(dtype, 60 * normal_at(seed, 2, static_cast<uint64_t>(i)))));
    }
    return add(std::move(name), dtype, std::move(shape), std::move(bytes));
  }
  // Scales around 2e-4.
  TestCheckpoint& add_scales(std::string name, std::vector<int64_t> shape, uint64_t seed) {
    std::vector<float> values;
    Rng rng(seed);
    for (int64_t i = 0; i < element_count(shape); ++i) {
      values.push_back(static_cast<float>(2e-4 * (0.5 + rng.next_unit())));
    }
    return add_f32(std::move(name), std::move(shape), values);
  }

  std::vector<std::byte>& bytes_of_tensor(const std::string& name) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].name == name) return bytes_[i];
    }
    ADD_FAILURE() << name;
    return bytes_[0];
  }

  void write(FileSystem& files, const std::string& folder, const std::string& config) const {
    ASSERT_TRUE(files.make_directories(folder).ok());
    write_file(files, join_path(folder, "model.safetensors"));
    if (!config.empty()) {
      ASSERT_TRUE(write_text_atomically(files, join_path(folder, "config.json"), config).ok());
    }
  }

 private:
  void write_file(FileSystem& files, const std::string& path) const {
    auto writer = SafetensorsWriter::create(files, path, tensors_);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      ASSERT_TRUE(writer->write(tensors_[i].name, 0, bytes_[i]).ok());
    }
    ASSERT_TRUE(writer->close(false).ok());
  }

  std::vector<TensorSpec> tensors_;
  std::vector<std::vector<std::byte>> bytes_;
};

// A linear layer in 16x16 blocks with ragged ends, a norm and a router bias.
inline TestCheckpoint block_checkpoint() {
  TestCheckpoint checkpoint;
  checkpoint.add_bf16("embed.weight", {32, 40}, 3);
  checkpoint.add_codes("l.q_proj.weight", DType::kE4M3FN, {40, 72}, 4);
  checkpoint.add_scales("l.q_proj.weight_scale_inv", {3, 5}, 5);
  checkpoint.add_f32("l.gate.e_score_correction_bias", {3}, {1.0000001f, -2.5f, 1e-30f});
  return checkpoint;
}

}  // namespace invar
