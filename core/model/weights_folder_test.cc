#include "core/model/weights_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/memory_files.h"
#include "core/container/safetensors_writer.h"
#include "core/model/test_model.h"
#include "core/numerics/formats.h"

namespace invar {
namespace {

// The folder of a small model; `change` edits the list of tensors before it is written.
void write_folder(MemoryFiles& files, const ModelShape& shape, DType dtype,
                  const std::function<void(std::vector<TensorSpec>&)>& change = {}) {
  std::vector<TensorSpec> tensors;
  for (const ParameterSpec& parameter : parameters_of(shape))
    tensors.push_back({parameter.name, dtype, parameter.shape});
  if (change) change(tensors);
  ASSERT_TRUE(files.make_directories("/m").ok());
  auto writer = SafetensorsWriter::create(files, "/m/model.safetensors", tensors);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (const TensorInfo& tensor : writer->tensors()) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.byte_size()));
    // The number of the tensor's letters, and its element: enough to tell tensors and offsets apart.
    for (int64_t i = 0; i < element_count(tensor.shape); ++i) {
      const float value = static_cast<float>(tensor.name.size()) + static_cast<float>(i % 64);
      const uint32_t code = tensor.dtype == DType::kF32    ? std::bit_cast<uint32_t>(value)
                            : tensor.dtype == DType::kBF16 ? bf16_from_f32(value)
                                                           : f16_from_f32(value);
      if (tensor.dtype == DType::kE4M3FN) continue;
      std::memcpy(bytes.data() + bytes_of(tensor.dtype, i), &code, static_cast<size_t>(bytes_of(tensor.dtype, 1)));
    }
    ASSERT_TRUE(writer->write(tensor, 0, bytes).ok());
  }
  ASSERT_TRUE(writer->close(false).ok());
  files.put("/m/config.json", *write_model_config(shape, "bfloat16"));
}

TEST(FolderWeights, ReadsEveryDtypeAtAnyOffset) {
  const ModelShape shape = testing::small_shape();
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    MemoryFiles files;
    ASSERT_NO_FATAL_FAILURE(write_folder(files, shape, dtype));
    EXPECT_EQ(*read_model_shape(files, "/m"), shape);
    auto weights = FolderWeights::open(files, "/m", shape);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    const auto parameters = parameters_of(shape);
    float out[10];
    ASSERT_TRUE((*weights)->read(2, parameters[2], 100, 10, out).ok());
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(out[i], static_cast<float>(parameters[2].name.size()) + static_cast<float>((100 + i) % 64));
    }
    EXPECT_EQ((*weights)->read(1, parameters[1], 20, 10, out).reason(), "model.range");
  }
}

TEST(FolderWeights, TiedHeadMayBeStoredUnderItsOtherName) {
  const ModelShape shape = testing::small_shape();
  MemoryFiles files;
  ASSERT_NO_FATAL_FAILURE(
      write_folder(files, shape, DType::kBF16, [](auto& tensors) { tensors[0].name = "lm_head.weight"; }));
  EXPECT_TRUE(FolderWeights::open(files, "/m", shape).ok());
}

TEST(FolderWeights, NamesTheTensorAndTheExpectation) {
  const ModelShape shape = testing::small_shape(false);
  const auto status_of = [&](const std::function<void(std::vector<TensorSpec>&)>& change) {
    MemoryFiles files;
    write_folder(files, shape, DType::kBF16, change);
    return FolderWeights::open(files, "/m", shape).status();
  };
  Status status = status_of([](auto& tensors) { tensors.erase(tensors.begin() + 4); });
  EXPECT_EQ(status.reason(), "model.missing_tensor");
  EXPECT_EQ(status.message(),
            "/m: tensor \"model.layers.0.self_attn.v_proj.weight\" is missing: the model needs it with shape [16, 24]");
  status = status_of([](auto& tensors) { tensors[0].shape[0] = 70; });
  EXPECT_EQ(status.reason(), "model.shape_mismatch");
  EXPECT_EQ(
      status.message(),
      "/m: tensor \"model.embed_tokens.weight\" has shape [70, 24]: expected [61, 24]: the weights' vocabulary has "
      "70 entries, the config's \"vocab_size\" is 61");
  status = status_of([](auto& tensors) { tensors[2].shape = {24, 32}; });
  EXPECT_EQ(status.message(),
            "/m: tensor \"model.layers.0.self_attn.q_proj.weight\" has shape [24, 32]: expected [32, 24]");
  status = status_of([](auto& tensors) { tensors[2].dtype = DType::kE4M3FN; });
  EXPECT_EQ(status.reason(), "model.dtype");
  status = status_of([](auto& tensors) { tensors.push_back({"model.layers.7.extra", DType::kBF16, {2}}); });
  EXPECT_EQ(status.reason(), "model.unexpected_tensor");
  EXPECT_NE(status.message().find("\"model.layers.7.extra\""), std::string::npos);
  EXPECT_TRUE(status_of([](auto& tensors) {
                tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {4}});
              }).ok());
}

TEST(FolderWeights, MissingConfigNamesTheFile) {
  MemoryFiles files;
  ASSERT_TRUE(files.make_directories("/m").ok());
  const Status status = read_model_shape(files, "/m").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("/m/config.json"), std::string::npos);
}

// The masters get what the working copy cannot hold.
TEST(Load, GivesMastersTheUnroundedValues) {
  const ModelShape shape = testing::small_shape();
  auto model = testing::make_model(shape, testing::options_for(Recipe::kBf16));
  std::vector<std::vector<float>> memory;
  std::vector<float*> masters;
  for (const Parameter& parameter : model->parameters()) {
    memory.emplace_back(static_cast<size_t>(parameter.count));
    masters.push_back(parameter.dtype == DType::kF32 ? nullptr : memory.back().data());
  }
  RandomWeights random(9, std::make_shared<ThreadPool>(3));
  ASSERT_TRUE(model->load(random, masters).ok());
  double squares = 0;
  int64_t matrices = 0, rounded = 0;
  for (size_t i = 0; i < memory.size(); ++i) {
    const Parameter& parameter = model->parameters()[i];
    EXPECT_EQ(parameter.spec.kind == ParameterKind::kVector, parameter.dtype == DType::kF32);
    for (int64_t k = 0; k < parameter.count; ++k) {
      if (parameter.dtype == DType::kF32) {
        ASSERT_EQ(static_cast<const float*>(parameter.working)[k], 1.0f);
        continue;
      }
      const float master = memory[i][static_cast<size_t>(k)];
      ASSERT_EQ(master, 0.02f * normal_at(9, i, static_cast<uint64_t>(k)));
      const float working = f32_from_bf16(static_cast<const uint16_t*>(parameter.working)[k]);
      ASSERT_EQ(working, f32_from_bf16(bf16_from_f32(master)));
      rounded += working != master;
      squares += double{master} * master;
      ++matrices;
    }
  }
  EXPECT_GT(rounded, matrices / 2);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(matrices)), 0.02, 0.001);
}

}  // namespace
}  // namespace invar
