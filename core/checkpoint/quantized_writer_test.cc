#include "core/checkpoint/quantized_writer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/memory_files.h"
#include "core/container/json_document.h"
#include "core/numerics/codec.h"
#include "core/numerics/normal.h"

namespace invar {
namespace {

// A small model with ragged matrices; the values stay alive with it.
struct TinyModel {
  std::vector<std::vector<float>> values;
  ModelFolder folder;

  void add(const std::string& name, std::vector<int64_t> shape, DType dtype = DType::kBF16) {
    const int64_t count = element_count(shape);
    std::vector<float> data(static_cast<size_t>(count));
    for (size_t i = 0; i < data.size(); ++i) data[i] = 0.02f * normal_at(3, values.size(), i);
    values.push_back(std::move(data));
    folder.tensors.push_back(tensor_in_memory(name, std::move(shape), DType::kF32, values.back().data()));
    folder.tensors.back().dtype = dtype;
  }

  TinyModel() {
    folder.config = R"({"model_type":"llama","torch_dtype":"float32","tie_word_embeddings":true})";
    add("model.embed_tokens.weight", {300, 64});
    add("model.layers.0.self_attn.q_proj.weight", {140, 200});
    add("model.layers.0.mlp.down_proj.weight", {256, 128});
    add("model.layers.0.mlp.gate.weight", {8, 128});
    add("model.layers.0.input_layernorm.weight", {64}, DType::kF32);
    add("model.layers.1.self_attn.q_proj.weight", {140, 200});
    for (float& value : values[2]) value = 0;
    values[1][5] = 3;
  }
};

std::vector<float> decoded(const CheckpointFolder& folder, const std::string& name) {
  const TensorInfo* tensor = folder.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (tensor == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(element_count(tensor->shape)));
  const auto bytes = folder.read_all(*tensor);
  EXPECT_TRUE(convert_to_f32(tensor->dtype, bytes->data(), values.data(), static_cast<int64_t>(values.size())));
  return values;
}

class Quantized : public ::testing::TestWithParam<Fp8Layout> {
 protected:
  // The scale of element (row, col) of a matrix with `cols` columns, in the layout under test.
  static size_t scale_index(int64_t row, int64_t col, int64_t cols) {
    switch (GetParam()) {
      case Fp8Layout::kBlock: return static_cast<size_t>(row / 128 * ((cols + 127) / 128) + col / 128);
      case Fp8Layout::kTensor: return 0;
      case Fp8Layout::kChannel: return static_cast<size_t>(row);
    }
    return 0;
  }
};

TEST_P(Quantized, StoresNearestCodesWithTheScaleOfTheirGroup) {
  for (const DType scale_dtype : {DType::kF32, DType::kBF16}) {
    TinyModel model;
    QuantizedOptions options;
    options.layout = GetParam();
    options.scale_dtype = scale_dtype;
    MemoryFiles files;
    const auto report = write_quantized_model(files, "/fp8", model.folder, options, {});
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->quantized, 3);
    const auto folder = CheckpointFolder::open(files, "/fp8");
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    EXPECT_EQ(folder->tensors().size(), 9u);

    const std::string name = "model.layers.0.self_attn.q_proj.weight";
    const std::string scale_name = name + (GetParam() == Fp8Layout::kBlock ? "_scale_inv" : "_scale");
    ASSERT_EQ(folder->find(name)->dtype, DType::kE4M3FN);
    ASSERT_NE(folder->find(scale_name), nullptr);
    ASSERT_EQ(folder->find(scale_name)->dtype, scale_dtype);
    const auto codes = decoded(*folder, name), scales = decoded(*folder, scale_name);
    const std::vector<float>& values = model.values[1];
    std::vector<float> amax(scales.size());
    for (int64_t i = 0; i < 140 * 200; ++i) {
      const size_t group = scale_index(i / 200, i % 200, 200);
      amax[group] = std::max(amax[group], std::fabs(values[static_cast<size_t>(i)]));
      const float expected =
          decode(DType::kE4M3FN, encode_fp8(DType::kE4M3FN, values[static_cast<size_t>(i)] / scales[group]));
      ASSERT_EQ(codes[static_cast<size_t>(i)], expected) << i;
    }
    for (size_t group = 0; group < scales.size(); ++group) {
      float expected = amax[group] / 448;
      if (scale_dtype == DType::kBF16) expected = f32_from_bf16(bf16_from_f32(expected));
      EXPECT_EQ(scales[group], expected);
    }
    for (const float scale : decoded(*folder, "model.layers.0.mlp.down_proj.weight" + scale_name.substr(name.size()))) {
      EXPECT_EQ(scale, 1) << "an all-zero group";
    }
    EXPECT_EQ(folder->find("model.layers.0.input_layernorm.weight")->dtype, DType::kF32);
    EXPECT_EQ(folder->find("model.layers.0.mlp.gate.weight")->dtype, DType::kBF16);
    // Gaussian values in E4M3 with one scale for many: 31.5 dB.
    EXPECT_NEAR(report->tensors[5].sqnr_db, 31.5, 0.5);
  }
}

TEST_P(Quantized, GivesTheSameBytesAtAnyNumberOfThreads) {
  TinyModel model;
  QuantizedOptions options;
  options.layout = GetParam();
  MemoryFiles one, many;
  ModelWriteOptions write;
  ASSERT_TRUE(write_quantized_model(one, "/fp8", model.folder, options, write).ok());
  ThreadPool pool(4);
  write.pool = &pool;
  ASSERT_TRUE(write_quantized_model(many, "/fp8", model.folder, options, write).ok());
  EXPECT_TRUE(one.snapshot() == many.snapshot());
}

TEST_P(Quantized, NamesTheElementThatIsNotFinite) {
  TinyModel model;
  model.values[5][130 * 200 + 7] = INFINITY;
  QuantizedOptions options;
  options.layout = GetParam();
  options.bf16_copy = "/bf16";
  MemoryFiles files;
  const auto report = write_quantized_model(files, "/fp8", model.folder, options, {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().reason(), "checkpoint.not_finite");
  EXPECT_NE(report.status().message().find("model.layers.1.self_attn.q_proj.weight\" at [130, 7]"), std::string::npos)
      << report.status().message();
  EXPECT_TRUE(files.snapshot().empty());
}

INSTANTIATE_TEST_SUITE_P(Layouts, Quantized,
                         ::testing::Values(Fp8Layout::kBlock, Fp8Layout::kTensor, Fp8Layout::kChannel));

TEST(QuantizedWriter, PowerOfTwoScalesDecodeExactly) {
  TinyModel model;
  QuantizedOptions options;
  options.power_of_two_scales = true;
  MemoryFiles files;
  ASSERT_TRUE(write_quantized_model(files, "/fp8", model.folder, options, {}).ok());
  const auto folder = CheckpointFolder::open(files, "/fp8");
  ASSERT_TRUE(folder.ok());
  for (const float scale : decoded(*folder, "model.layers.1.self_attn.q_proj.weight_scale_inv")) {
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5f);
  }
  const auto config = parse_json_object("config", *folder->side_text("config.json"), "test");
  EXPECT_EQ((*config)["quantization_config"]["scale_fmt"], "ue8m0");
}

TEST(QuantizedWriter, WritesCopiesBeside) {
  TinyModel model;
  QuantizedOptions options;
  options.bf16_copy = "/fp8-bf16";
  options.masters_copy = "/fp8-masters";
  options.keep = {"model.layers.1.*"};
  model.folder.side_files = {{"tokenizer.json", "{}", ""}};
  MemoryFiles files;
  const auto report = write_quantized_model(files, "/fp8", model.folder, options, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->quantized, 2);
  const auto fp8 = CheckpointFolder::open(files, "/fp8");
  const auto bf16 = CheckpointFolder::open(files, "/fp8-bf16");
  const auto masters = CheckpointFolder::open(files, "/fp8-masters");
  ASSERT_TRUE(fp8.ok() && bf16.ok() && masters.ok());
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  EXPECT_EQ(decoded(*masters, name), model.values[5]);
  EXPECT_EQ(decoded(*fp8, name), decoded(*bf16, name));
  EXPECT_EQ(bf16->find("model.layers.0.input_layernorm.weight")->dtype, DType::kBF16);

  const auto config = parse_json_object("config", *fp8->side_text("config.json"), "test");
  EXPECT_EQ((*config)["torch_dtype"], "bfloat16");
  EXPECT_EQ((*config)["quantization_config"]["quant_method"], "fp8");
  EXPECT_EQ((*config)["quantization_config"]["weight_block_size"], nlohmann::json({128, 128}));
  EXPECT_EQ((*config)["quantization_config"]["modules_to_not_convert"],
            nlohmann::json({"lm_head", "model.layers.0.mlp.gate", "model.layers.1.self_attn.q_proj"}));
  const auto plain = parse_json_object("config", *masters->side_text("config.json"), "test");
  EXPECT_EQ((*plain)["torch_dtype"], "float32");
  EXPECT_FALSE(plain->contains("quantization_config"));
  EXPECT_TRUE(bf16->has_side_file("tokenizer.json"));
}

TEST(QuantizedWriter, DeclaresCompressedTensors) {
  QuantizedOptions options;
  options.layout = Fp8Layout::kChannel;
  const auto config = parse_json_object("config", quantization_config_text(options, {"lm_head"}), "test");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)["quant_method"], "compressed-tensors");
  EXPECT_EQ((*config)["format"], "float-quantized");
  EXPECT_EQ((*config)["ignore"], nlohmann::json::array({"lm_head"}));
  const auto& group = (*config)["config_groups"]["group_0"];
  EXPECT_EQ(group["targets"], nlohmann::json::array({"Linear"}));
  EXPECT_EQ(group["weights"]["strategy"], "channel");
  EXPECT_EQ(group["weights"]["num_bits"], 8);
  EXPECT_EQ(group["input_activations"]["strategy"], "token");
  EXPECT_TRUE(group["input_activations"]["dynamic"].get<bool>());
}

TEST(QuantizedWriter, KnowsLinearWeightsByName) {
  for (const char* name : {"model.layers.0.mlp.gate_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                           "model.layers.3.mlp.experts.7.up_proj.weight"}) {
    EXPECT_TRUE(is_linear_weight(name, {4, 4})) << name;
  }
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "transformer.wte.weight",
                           "model.layers.0.mlp.gate.weight", "model.layers.0.q_proj.bias", "model.layers.0.ln_1.weight",
                           "model.layers.0.self_attn.q_norm.weight"}) {
    EXPECT_FALSE(is_linear_weight(name, {4, 4})) << name;
  }
  EXPECT_FALSE(is_linear_weight("model.layers.0.mlp.up_proj.weight", {4}));
}

TEST(QuantizedWriter, RefusesOtherScaleDtypes) {
  TinyModel model;
  QuantizedOptions options;
  options.scale_dtype = DType::kF16;
  MemoryFiles files;
  EXPECT_EQ(write_quantized_model(files, "/fp8", model.folder, options, {}).status().reason(),
            "checkpoint.bad_scale_dtype");
}

}  // namespace
}  // namespace invar
