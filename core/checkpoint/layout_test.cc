// What classify() makes of names, dtypes, shapes and configs; the cases of tests/cases are judged in
// tests/cases_driver.
#include "core/checkpoint/layout.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/base/memory_files.h"
#include "core/checkpoint/convert.h"
#include "core/checkpoint/inspect.h"
#include "core/checkpoint/test_checkpoint.h"
#include "core/checkpoint/values.h"

namespace invar {
namespace {

std::string compressed(const std::string& groups) {
  return R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {)" +
         groups + "}}}";
}
std::string group(const std::string& name, const std::string& target, const std::string& weights) {
  return "\"" + name + R"(": {"targets": [")" + target + R"("], "weights": {"num_bits": 8, "type": "float", )" +
         weights + "}}";
}

class Layouts : public testing::Test {
 protected:
  // The folder stays open: plans point into it.
  Result<Layout> read(const TestCheckpoint& checkpoint, const std::string& config, const Assumptions& assume = {}) {
    const std::string path = cat("/m", ++count_);
    checkpoint.write(files_, path, config);
    auto opened = CheckpointFolder::open(files_, path);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    folder_ = std::make_unique<CheckpointFolder>(std::move(*opened));
    return classify(*folder_, assume);
  }
  std::string reason(const TestCheckpoint& checkpoint, const std::string& config, const Assumptions& assume = {}) {
    const auto layout = read(checkpoint, config, assume);
    message_ = layout.ok() ? "" : layout.status().message();
    return layout.ok() ? "ok" : layout.status().reason();
  }

  MemoryFiles files_;
  int count_ = 0;
  std::unique_ptr<CheckpointFolder> folder_;
  std::string message_;
};

TEST_F(Layouts, FusedExpertsHaveOneGridForEachMatrix) {
  TestCheckpoint made;
  made.add_codes("experts.gate_up_proj", DType::kE4M3FN, {3, 40, 24}, 1);
  made.add_scales("experts.gate_up_proj_scale_inv", {3, 3, 2}, 2);
  const auto layout = read(made, kBlockConfig);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  const ScaleGrid& grid = layout->tensors[0].scales[0].grid;
  EXPECT_EQ(layout->tensors[0].rule, "block_scale");
  EXPECT_EQ(grid.matrices, 3);
  EXPECT_EQ(grid.scale_row(0), 0);
  EXPECT_EQ(grid.scale_row(39), 4);
  EXPECT_EQ(grid.scale_row(40), 6) << "the second matrix begins a new grid although 40 is no multiple of 16";
  EXPECT_EQ(grid.scale_row(119), 16);
  std::vector<double> values(3 * 40 * 24);
  ValueReader reader(*folder_);
  ASSERT_TRUE(reader.read(layout->tensors[0], 0, std::span(values)).ok());
  const auto& codes = made.bytes_of_tensor("experts.gate_up_proj");
  const auto& scales = made.bytes_of_tensor("experts.gate_up_proj_scale_inv");
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
    const int64_t matrix = i / 960, row = i % 960 / 24, col = i % 24;
    float scale;
    std::memcpy(&scale, scales.data() + (matrix * 6 + row / 16 * 2 + col / 16) * 4, 4);
    ASSERT_EQ(values[static_cast<size_t>(i)],
              static_cast<double>(decode(DType::kE4M3FN, static_cast<uint8_t>(codes[static_cast<size_t>(i)]))) * scale)
        << i;
  }
}

TEST_F(Layouts, ValuesOfAnyRunEqualThoseOfTheWhole) {
  TestCheckpoint made;
  made.add_codes("a.weight", DType::kE4M3FN, {40, 72}, 4).add_scales("a.weight_scale_inv", {3, 5}, 5);
  const auto layout = read(made, kBlockConfig);
  ASSERT_TRUE(layout.ok());
  ValueReader reader(*folder_);
  std::vector<float> whole(40 * 72);
  ASSERT_TRUE(reader.read(layout->tensors[0], 0, std::span(whole)).ok());
  for (int64_t first : {0, 1, 71, 72, 100, 1151, 2879}) {
    for (int64_t n : {1, 2, 15, 73, 500}) {
      if (first + n > 40 * 72) continue;
      std::vector<float> part(static_cast<size_t>(n));
      ASSERT_TRUE(reader.read(layout->tensors[0], first, std::span(part)).ok());
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(part[static_cast<size_t>(i)], whole[static_cast<size_t>(first + i)]);
    }
  }
}

TEST_F(Layouts, TheDeclaredStrategyDecidesNotTheShape) {
  // [128, 1]: one scale a row, or blocks of 1 x 128: the same. [8, 1] over 128 rows: only blocks.
  TestCheckpoint made;
  made.add_codes("a.weight", DType::kE4M3FN, {128, 16}, 1).add_scales("a.weight_scale", {8, 1}, 2);
  const auto blocks =
      read(made, compressed(group("g", "Linear", R"("strategy": "block", "block_structure": [16, 16])")));
  ASSERT_TRUE(blocks.ok()) << blocks.status().message();
  EXPECT_EQ(blocks->tensors[0].scales[0].grid.block_rows, 16);
  EXPECT_EQ(read(made, compressed(group("g", "Linear", R"("strategy": "block", "block_structure": "16x16")")))
                ->tensors[0]
                .scales[0]
                .grid.block_rows,
            16);
  EXPECT_EQ(reason(made, compressed(group("g", "Linear", R"("strategy": "channel")"))), "checkpoint.scale_shape");
  EXPECT_NE(message_.find("[128, 1]"), std::string::npos) << message_;
  EXPECT_EQ(reason(made, compressed(group("g", "Linear", R"("strategy": "block")"))), "checkpoint.ambiguous_scale");
}

TEST_F(Layouts, ConfigsNestedWithoutEndAreRefused) {
  TestCheckpoint made;
  made.add_codes("a.weight", DType::kE4M3FN, {16, 16}, 1).add_scales("a.weight_scale", {}, 2);
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  for (const char* key : {"model_type", "quantization_config"}) {
    EXPECT_EQ(reason(made, cat("{\"", key, "\": ", deep, "}")), "checkpoint.bad_config") << key;
    EXPECT_NE(message_.find("nested deeper"), std::string::npos) << message_;
  }
}

TEST_F(Layouts, GroupsAreFoundByTheirTargets) {
  TestCheckpoint made;
  made.add_codes("model.layers.0.self_attn.q_proj.weight", DType::kE4M3FN, {16, 16}, 1);
  made.add_scales("model.layers.0.self_attn.q_proj.weight_scale", {16, 1}, 2);
  made.add_codes("model.layers.0.mlp.up_proj.weight", DType::kE4M3FN, {16, 16}, 3);
  made.add_scales("model.layers.0.mlp.up_proj.weight_scale", {1}, 4);
  const std::string config = compressed(group("a", "re:.*self_attn\\\\.(q|k|v)_proj$", R"("strategy": "channel")") +
                                        "," + group("b", "Linear", R"("strategy": "tensor")"));
  const auto layout = read(made, config);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  EXPECT_EQ(layout->find("model.layers.0.self_attn.q_proj.weight")->rule, "row_scale");
  EXPECT_EQ(layout->find("model.layers.0.mlp.up_proj.weight")->rule, "tensor_scale");
}

TEST_F(Layouts, SingleScalesOfAnyRankAreReadWhenNoBlockIsDeclared) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {1, 1}}) {
    for (const char* name : {"a.weight_scale_inv", "a.weight_scale"}) {
      TestCheckpoint made;
      made.add_codes("a.weight", DType::kE4M3FN, {300, 200}, 1).add_scales(name, shape, 2);
      const auto layout = read(made, R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": null}})");
      ASSERT_TRUE(layout.ok()) << layout.status().message();
      EXPECT_EQ(layout->tensors[0].rule, "tensor_scale");
    }
  }
  TestCheckpoint made;
  made.add_codes("a.weight", DType::kE4M3FN, {300, 200}, 1).add_scales("a.weight_scale_inv", {}, 2);
  EXPECT_EQ(reason(made, kBlockConfig), "checkpoint.scale_shape") << "the declared blocks need a grid";
}

TEST_F(Layouts, AssumptionsSettleWhatFilesLeaveOpen) {
  TestCheckpoint made;
  made.add_codes("a.weight", DType::kE4M3FN, {40, 48}, 1).add_scales("a.weight_scale_inv", {5, 3}, 2);
  EXPECT_EQ(reason(made, ""), "checkpoint.ambiguous_scale");
  EXPECT_NE(message_.find("8x16"), std::string::npos) << message_;
  const auto stated = read(made, "", {{"block", "8x16"}});
  ASSERT_TRUE(stated.ok()) << stated.status().message();
  EXPECT_EQ(stated->tensors[0].scales[0].grid.block_rows, 8);

  TestCheckpoint bare;
  bare.add_codes("a.weight", DType::kE4M3FN, {8, 8}, 1);
  EXPECT_EQ(reason(bare, ""), "checkpoint.missing_scale");
  EXPECT_NE(message_.find("missing_scale=one"), std::string::npos) << message_;
  EXPECT_EQ(read(bare, "", {{"missing_scale", "one"}})->tensors[0].rule, "unscaled");

  TestCheckpoint two;
  two.add_codes("a.weight", DType::kE4M3FN, {8, 8}, 1).add_scales("a.weight_scale", {}, 2);
  two.add_scales("a.scale_weight", {}, 3);
  EXPECT_EQ(reason(two, ""), "checkpoint.ambiguous_scale");
  const auto chosen = read(two, "", {{"scale_name", "scale_weight"}});
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  EXPECT_EQ(chosen->tensors[0].scales[0].tensor->name, "a.scale_weight");
  EXPECT_EQ(chosen->dropped.size(), 2u);

  TestCheckpoint orphan;
  orphan.add_codes("a.weight", DType::kE4M3FN, {8, 8}, 1).add_scales("a.weight_scale", {}, 2);
  orphan.add_scales("b.weight_scale", {}, 3);
  EXPECT_EQ(reason(orphan, ""), "checkpoint.unused_scale");
  EXPECT_EQ(reason(orphan, "", {{"unused_scale", "drop"}}), "ok");

  TestCheckpoint bytes;
  bytes.add_codes("a.weight", DType::kE4M3FN, {2, 32}, 1);
  bytes.add("a.weight_scale_inv", DType::kU8, {2, 1}, {std::byte{120}, std::byte{121}});
  const std::string config = R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [1, 32]}})";
  EXPECT_EQ(reason(bytes, config), "checkpoint.ambiguous_scale");
  EXPECT_EQ(reason(bytes, config, {{"u8_scales", "e8m0"}}), "ok");

  const auto relabelled = read(made, "", {{"block", "8x16"}, {"e4m3", "fnuz"}});
  ASSERT_TRUE(relabelled.ok());
  EXPECT_EQ(relabelled->tensors[0].code_dtype, DType::kE4M3FNUZ);
}

TEST_F(Layouts, RefusesAssumptionsItDoesNotKnow) {
  TestCheckpoint made;
  made.add_bf16("a.weight", {4, 4}, 1);
  EXPECT_EQ(reason(made, "", {{"blok", "16x16"}}), "config.unknown_assumption");
  EXPECT_NE(message_.find("block"), std::string::npos) << message_;
  for (const char* value : {"16", "x16", "16x", "0x16", "16x16x16", "-1x4", "16x1234567890123456789", ""}) {
    EXPECT_EQ(reason(made, "", {{"block", value}}), "config.bad_assumption") << value;
  }
}

TEST_F(Layouts, RefusesConfigsOfTheWrongKind) {
  TestCheckpoint made;
  made.add_codes("a.weight", DType::kE4M3FN, {8, 8}, 1).add_scales("a.weight_scale", {}, 2);
  for (const char* config :
       {"[]", "{", R"({"quantization_config": 3})", R"({"quantization_config": {"quant_method": 3}})",
        R"({"quantization_config": {"weight_block_size": [128]}})",
        R"({"quantization_config": {"weight_block_size": [0, 1]}})",
        R"({"quantization_config": {"weight_block_size": "axb"}})", R"({"quantization_config": {"config_groups": []}})",
        R"({"quantization_config": {"config_groups": {"g": {"targets": "Linear"}}}})", R"({"model_type": 7})"}) {
    EXPECT_EQ(reason(made, config), "checkpoint.bad_config") << config;
    EXPECT_NE(message_.find("config.json"), std::string::npos) << message_;
  }
}

TEST_F(Layouts, ActivationScalesAreDroppedOnlyBesideQuantisedWeights) {
  TestCheckpoint plain;
  plain.add_bf16("a.weight", {4, 4}, 1).add_scales("a.input_scale", {1}, 2);
  const auto kept = read(plain, "");
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->tensors.size(), 2u);
  TestCheckpoint quantised;
  quantised.add_codes("a.weight", DType::kE4M3FN, {4, 4}, 1).add_scales("a.weight_scale", {}, 2);
  for (const char* name : {"a.input_scale", "a.activation_scale", "self_attn.k_scale", "self_attn.kv_scale"}) {
    quantised.add_scales(name, {}, 3);
  }
  quantised.add_scales("vision.layer_scale", {4}, 4);
  const auto dropped = read(quantised, "");
  ASSERT_TRUE(dropped.ok()) << dropped.status().message();
  EXPECT_EQ(dropped->dropped.size(), 5u);
  EXPECT_NE(dropped->find("vision.layer_scale"), nullptr) << "a parameter that is only called a scale stays";
}

TEST_F(Layouts, ExtraStateOfTransformerEngineIsLeftOutUnread) {
  TestCheckpoint made;
  made.add_bf16("decoder.layers.0.mlp.fc1.weight", {8, 8}, 1);
  made.add("decoder.layers.0.mlp.fc1._extra_state", DType::kU8, {3}, {std::byte{0x80}, std::byte{2}, std::byte{'.'}});
  made.add("decoder.layers.1.mlp.fc1._extra_state", DType::kU8, {0}, {});
  const auto layout = read(made, "");
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  EXPECT_EQ(layout->tensors.size(), 1u);
  ASSERT_EQ(layout->dropped.size(), 2u);
  EXPECT_EQ(layout->dropped[0].rule, "drop");
}

TEST_F(Layouts, ModelOptBlockScalesMayHaveRankFour) {
  TestCheckpoint made;
  made.add_codes("a.weight", DType::kE4M3FN, {256, 128}, 1).add_scales("a.weight_scale", {2, 1, 1, 1}, 2);
  const auto layout = read(made, R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}})");
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  EXPECT_EQ(layout->tensors[0].rule, "block_scale");
}

TEST_F(Layouts, PackedFp4IsReadInRunsOfAnyLength) {
  TestCheckpoint made;
  std::vector<std::byte> packed;
  for (int i = 0; i < 4 * 32; ++i) packed.push_back(static_cast<std::byte>(i * 37));
  made.add("a.weight", DType::kI8, {4, 32}, packed);
  made.add("a.scale", DType::kE8M0, {4, 2}, std::vector<std::byte>(8, std::byte{126}));
  const auto layout = read(made, R"({"expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8"}})");
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  const TensorPlan& plan = layout->tensors[0];
  EXPECT_EQ(plan.shape, (std::vector<int64_t>{4, 64}));
  ValueReader reader(*folder_);
  for (int64_t first : {0, 1, 63, 64, 255}) {
    for (int64_t n : {1, 2, 65}) {
      if (first + n > 256) continue;
      std::vector<float> values(static_cast<size_t>(n));
      ASSERT_TRUE(reader.read(plan, first, std::span(values)).ok());
      for (int64_t i = 0; i < n; ++i) {
        const auto pair = static_cast<uint8_t>(packed[static_cast<size_t>((first + i) / 2)]);
        const uint8_t code = (first + i) % 2 == 0 ? pair & 15 : pair >> 4;
        ASSERT_EQ(values[static_cast<size_t>(i)], decode(DType::kE2M1, code) * 0.5f) << first << " + " << i;
      }
    }
  }
}

TEST_F(Layouts, InspectReportsWhatCannotBeClassified) {
  TestCheckpoint bare;
  bare.add_codes("a.weight", DType::kE4M3FN, {8, 8}, 1).add_bf16("b.weight", {2, 2}, 2);
  bare.write(files_, "/bare", "");
  v1::InspectConfig config;
  config.set_path("/bare");
  config.set_names("b.*");
  const auto report = inspect(config, files_);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->tensors(), 2);
  EXPECT_EQ(report->parameters(), 68);
  EXPECT_EQ(report->tensor_size(), 1);
  ASSERT_EQ(report->warnings_size(), 1);
  EXPECT_NE(report->warnings(0).find("checkpoint.missing_scale"), std::string::npos) << report->warnings(0);
}

}  // namespace
}  // namespace invar
