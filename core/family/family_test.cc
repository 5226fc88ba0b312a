#include "core/family/family.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace invar {
namespace {

nlohmann::json small_config() {
  return {{"model_type", "llama"},          {"vocab_size", 512},      {"hidden_size", 64},
          {"intermediate_size", 96},        {"num_hidden_layers", 2}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2},       {"rms_norm_eps", 1e-5},   {"tie_word_embeddings", true},
          {"max_position_embeddings", 128}, {"eos_token_id", 2}};
}

Status parse_status(const nlohmann::json& config) {
  return parse_model_config(config.dump(), "m/config.json").status();
}

TEST(Family, ReadsALlamaConfig) {
  const auto shape = parse_model_config(small_config().dump(), "m/config.json");
  ASSERT_TRUE(shape.ok()) << shape.status().message();
  EXPECT_EQ(shape->hidden, 64);
  EXPECT_EQ(shape->head_dim, 16);
  EXPECT_EQ(shape->kv_heads, 2);
  EXPECT_EQ(shape->rope_theta, 10000.0);
  EXPECT_TRUE(shape->tie_embeddings);
  EXPECT_EQ(shape->eos_tokens, std::vector<int64_t>{2});
}

TEST(Family, ReadsBothSpellingsOfTheRopeBase) {
  auto config = small_config();
  config["rope_theta"] = 500000;
  EXPECT_EQ(parse_model_config(config.dump(), "c")->rope_theta, 500000.0);
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 250000.0}};
  EXPECT_EQ(parse_model_config(config.dump(), "c")->rope_theta, 250000.0);
}

TEST(Family, TakesAHeadSizeThatIsNotHiddenOverHeads) {
  auto config = small_config();
  config["head_dim"] = 32;
  const auto shape = parse_model_config(config.dump(), "c");
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->query_size(), 128);
  EXPECT_EQ(parameters_of(*shape)[2].shape, (std::vector<int64_t>{128, 64}));
}

TEST(Family, NamesFileKeyValueAndExpectation) {
  auto config = small_config();
  config["hidden_size"] = "wide";
  Status status = parse_status(config);
  EXPECT_EQ(status.reason(), "config.wrong_type");
  EXPECT_EQ(status.message(), "m/config.json: \"hidden_size\" is \"wide\": expected a whole number");
  config.erase("hidden_size");
  status = parse_status(config);
  EXPECT_EQ(status.reason(), "config.missing_key");
  EXPECT_EQ(status.message(), "m/config.json: \"hidden_size\" is missing: expected a whole number");
  config["hidden_size"] = -4;
  EXPECT_EQ(parse_status(config).reason(), "config.out_of_range");
  config["hidden_size"] = 18446744073709551615ull;
  EXPECT_EQ(parse_status(config).reason(), "config.out_of_range");
  config["hidden_size"] = 64.0;
  EXPECT_EQ(parse_status(config).reason(), "config.wrong_type");
  config["hidden_size"] = 62;
  EXPECT_EQ(parse_status(config).reason(), "config.out_of_range");
}

TEST(Family, ListsWhatItSupportsForAnUnknownModelType) {
  auto config = small_config();
  config["model_type"] = "mamba";
  const Status status = parse_status(config);
  EXPECT_EQ(status.reason(), "config.unknown_model_type");
  EXPECT_EQ(status.message(),
            "m/config.json: \"model_type\" is \"mamba\": not supported, expected one of " + supported_families());
}

TEST(Family, RefusesWhatItWouldOtherwiseIgnore) {
  const std::pair<const char*, nlohmann::json> unsupported[] = {
      {"attention_bias", true},
      {"mlp_bias", true},
      {"hidden_act", "gelu"},
      {"attention_dropout", 0.1},
      {"sliding_window", 4096},
      {"rope_scaling", {{"rope_type", "longrope"}, {"factor", 8.0}}},
      {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}},
      {"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}},
  };
  for (const auto& [key, value] : unsupported) {
    auto config = small_config();
    config[key] = value;
    const Status status = parse_status(config);
    EXPECT_EQ(status.reason(), "config.unsupported") << key;
  }
}

TEST(Family, RefusesTextThatIsNoObject) {
  EXPECT_EQ(parse_model_config("", "c").status().reason(), "config.invalid_json");
  EXPECT_EQ(parse_model_config("[1]", "c").status().reason(), "config.invalid_json");
  EXPECT_EQ(parse_model_config("{\"a\": ", "c").status().reason(), "config.invalid_json");
  // Printing a value recurses: what is nested without end is refused before.
  const std::string deep =
      "{\"model_type\": \"llama\", \"hidden_size\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_EQ(parse_model_config(deep, "c").status().reason(), "config.invalid_json");
  EXPECT_EQ(parse_model_config("{}", "c").status().reason(), "config.missing_key");
}

TEST(Family, ReadsBackWhatItWrites) {
  auto shape = *parse_model_config(small_config().dump(), "c");
  shape.head_dim = 24;
  shape.rope_theta = 123456.0;
  shape.eos_tokens = {1, 2};
  const auto text = write_model_config(shape, "bfloat16");
  ASSERT_TRUE(text.ok());
  const auto again = parse_model_config(*text, "c");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, shape);
}

// What the config of each family can say survives writing and reading.
TEST(Family, ReadsBackEveryTraitOfEveryFamily) {
  for (const Family* family : families()) {
    SCOPED_TRACE(family->name);
    ModelShape shape = *parse_model_config(small_config().dump(), "c");
    shape.family = family->name;
    shape.layers = 4;
    shape = complete_shape(shape);
    const bool is_gemma3 = family->name == "gemma3_text", has_scores = is_gemma3 || family->name == "gemma2";
    if (has_scores) shape.attention_scale = 1 / std::sqrt(224.0);
    if (is_gemma3) shape.local_rope_theta = 20000, shape.logit_soft_cap = 12.5;
    if (family->name == "mistral") shape.windows = {7, 7, 7, 7};
    if (family->name == "qwen2" || family->name == "qwen3") shape.windows = {0, 0, 9, 9};
    if (has_scores) shape.windows = {9, 0, 9, 0};
    const RopeScaling scalings[] = {
        {},
        {.kind = RopeKind::kLinear, .factor = 8},
        {.kind = RopeKind::kLlama3, .factor = 32, .original_positions = 64, .low_frequency = 1, .high_frequency = 4},
        {.kind = RopeKind::kYarn, .factor = 4, .original_positions = 64, .beta_fast = 20, .attention_factor = 1.25},
    };
    for (const RopeScaling& scaling : scalings) {
      shape.rope_scaling = scaling;
      const auto text = write_model_config(shape, "bfloat16");
      ASSERT_TRUE(text.ok()) << text.status().message();
      const auto again = parse_model_config(*text, "c");
      ASSERT_TRUE(again.ok()) << again.status().message();
      EXPECT_NEAR(again->attention_scale, shape.attention_scale, 1e-12);
      ModelShape expected = shape;
      expected.attention_scale = again->attention_scale;
      EXPECT_EQ(*again, expected) << *text;
    }
  }
}

TEST(Family, FindsTheWindowsOfEachFamilysConfig) {
  auto config = small_config();
  config["model_type"] = "mistral";
  config["sliding_window"] = 16;
  EXPECT_EQ(parse_model_config(config.dump(), "c")->windows, (std::vector<int64_t>{16, 16}));
  config["model_type"] = "qwen2";
  EXPECT_TRUE(parse_model_config(config.dump(), "c")->windows.empty());  // not switched on
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 1;
  EXPECT_EQ(parse_model_config(config.dump(), "c")->windows, (std::vector<int64_t>{0, 16}));
  config["model_type"] = "gemma2";
  config["hidden_activation"] = "gelu_pytorch_tanh";
  EXPECT_EQ(parse_model_config(config.dump(), "c")->windows, (std::vector<int64_t>{16, 0}));
  config["model_type"] = "gemma3_text";
  config["sliding_window_pattern"] = 2;
  EXPECT_EQ(parse_model_config(config.dump(), "c")->windows, (std::vector<int64_t>{16, 0}));
  config["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(parse_model_config(config.dump(), "c")->windows, (std::vector<int64_t>{0, 16}));
  config["layer_types"] = {"full_attention", "linear_attention"};
  EXPECT_EQ(parse_status(config).reason(), "config.unsupported");
  config["layer_types"] = {"full_attention"};
  EXPECT_EQ(parse_status(config).reason(), "config.wrong_type");
}

TEST(Family, ListsEveryParameterOnceWithItsAlias) {
  auto shape = *parse_model_config(small_config().dump(), "c");
  const auto tied = parameters_of(shape);
  ASSERT_EQ(tied.size(), 1u + 2 * 9 + 1);
  EXPECT_EQ(tied[0].name, "model.embed_tokens.weight");
  EXPECT_EQ(tied[0].aliases, std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(tied[1].name, "model.layers.0.input_layernorm.weight");
  EXPECT_FALSE(tied[1].decays());
  EXPECT_EQ(tied[3].shape, (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(parameter_count(shape), 512 * 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96) + 64);
  shape.tie_embeddings = false;
  EXPECT_EQ(parameters_of(shape).back().name, "lm_head.weight");
  EXPECT_TRUE(parameters_of(shape)[0].aliases.empty());
}

}  // namespace
}  // namespace invar
