#include "core/train/inference/inference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/memory_files.h"
#include "core/checkpoint/quantized_writer.h"
#include "core/config/config.h"
#include "core/text/byte_tokenizer.h"
#include "core/train/inference/quantized_weights.h"

namespace invar {
namespace {

// A small Llama with random weights, as a BF16 folder and as an FP8 folder of 128x128 blocks.
class Inference : public testing::Test {
 protected:
  Inference() : pool(std::make_shared<ThreadPool>(2)) {
    shape.vocab = ByteTokenizer::kVocabSize;
    shape.hidden = 128;
    shape.layers = 2;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.head_dim = 32;
    shape.intermediate = 160;
    shape.max_positions = 64;
    shape.tie_embeddings = true;
    shape.eos_tokens = {ByteTokenizer::kEos};
    ModelFolder folder;
    folder.config = write_model_config(shape, "bfloat16").value();
    RandomWeights random(1, pool, 0.05f);
    const auto parameters = parameters_of(shape);
    values.resize(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      values[i].resize(static_cast<size_t>(parameters[i].count()));
      EXPECT_TRUE(random.read(i, parameters[i], 0, parameters[i].count(), values[i].data()).ok());
      folder.tensors.push_back(
          tensor_in_memory(parameters[i].name, parameters[i].shape, DType::kF32, values[i].data()));
    }
    EXPECT_TRUE(write_model_folder(files, "/bf16", folder, {}).ok());
    QuantizedOptions quantized;
    EXPECT_TRUE(write_quantized_model(files, "/fp8", folder, quantized, {}).ok());
    for (const char* path : {"/bf16", "/fp8"}) EXPECT_TRUE(save(path).ok());
    std::string text;
    for (int i = 0; i < 40; ++i) text += cat("verse ", i, " and so on\n");
    files.put("/text.txt", text);
  }

  Status save(const std::string& folder) {
    return write_text_atomically(files, join_path(folder, "tokenizer.json"), ByteTokenizer::tokenizer_json());
  }

  Result<std::unique_ptr<LoadedModel>> load(const std::string& path, const std::string& recipe = "fp32") {
    v1::LoadConfig config;
    config.set_path(path);
    EXPECT_TRUE(config::set(config, "recipe=" + recipe).ok());
    return LoadedModel::load(config::with_defaults(config), {.pool = pool, .files = &files});
  }

  Result<v1::EvalReport> evaluate(LoadedModel& loaded, int64_t length, int64_t micro_batch) {
    v1::EvalConfig config;
    config.mutable_data()->add_paths("/text.txt");
    config.mutable_data()->set_sequence_length(length);
    config.set_micro_batch(micro_batch);
    return evaluate_text(loaded.model(), loaded.tokenizer(), config::with_defaults(config), files, {});
  }

  std::shared_ptr<ThreadPool> pool;
  ModelShape shape;
  std::vector<std::vector<float>> values;
  MemoryFiles files;
};

// Half a step of E4M3 is 1/16 of the value, or half of the smallest code times the block's scale.
TEST_F(Inference, Fp8WeightsAreDecodedWhileLoading) {
  auto weights = QuantizedWeights::open(files, "/fp8", shape);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_NE((*weights)->layout(), "none");
  const auto parameters = parameters_of(shape);
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::vector<float> read(values[i].size());
    // In two parts, the second from an odd place.
    const int64_t half = parameters[i].count() / 2 + 1;
    ASSERT_TRUE((*weights)->read(i, parameters[i], 0, half, read.data()).ok());
    ASSERT_TRUE((*weights)->read(i, parameters[i], half, parameters[i].count() - half, read.data() + half).ok());
    float amax = 0;
    for (const float value : values[i]) amax = std::max(amax, std::fabs(value));
    for (size_t k = 0; k < read.size(); ++k) {
      ASSERT_NEAR(read[k], values[i][k], std::max(std::fabs(values[i][k]) / 16, amax / 448 * 0x1p-10f) * 1.01f)
          << parameters[i].name << " " << k;
    }
  }
}

TEST_F(Inference, LossDoesNotDependOnTheMicroBatchAndIsNearUniform) {
  auto loaded = load("/bf16");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto one = evaluate(**loaded, 32, 1), four = evaluate(**loaded, 32, 4);
  ASSERT_TRUE(one.ok()) << one.status().message();
  ASSERT_TRUE(four.ok());
  EXPECT_EQ(one->tokens(), one->sequences() * 32);
  EXPECT_NEAR(one->loss(), four->loss(), 1e-5);
  EXPECT_NEAR(one->loss(), std::log(259.0), 1.0);  // random weights know nothing
  EXPECT_NEAR(one->perplexity(), std::exp(one->loss()), 1e-9);
  auto quantized = load("/fp8");
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  EXPECT_NEAR(evaluate(**quantized, 32, 2)->loss(), one->loss(), 0.02 * one->loss());
}

TEST_F(Inference, GenerationStreamsWholeCharactersAndRepeats) {
  auto loaded = load("/bf16", "bf16");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  v1::GenerateConfig config;
  config.set_prompt("verse");
  config.set_max_tokens(20);
  config.set_temperature(1);
  config.set_stop_at_end(false);
  config = config::with_defaults(config);
  std::string streamed;
  int64_t tokens = 0;
  const auto hook = [&](int32_t, int64_t index, std::string_view text) {
    EXPECT_EQ(index, tokens++);
    streamed += text;
    return true;
  };
  const auto first = generate_text((*loaded)->model(), (*loaded)->tokenizer(), config, {.token = hook});
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(tokens, 20);
  EXPECT_EQ(first->ids_size(), 20);
  EXPECT_EQ(first->finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(first->text().substr(0, streamed.size()), streamed);
  const auto again = generate_text((*loaded)->model(), (*loaded)->tokenizer(), config, {});
  EXPECT_EQ(again->text(), first->text());
  const auto stopped = generate_text((*loaded)->model(), (*loaded)->tokenizer(), config,
                                     {.token = [](int32_t, int64_t index, std::string_view) { return index < 2; }});
  EXPECT_EQ(stopped->ids_size(), 3);
  EXPECT_EQ(stopped->finish_reason(), v1::FINISH_REASON_CALLBACK);
  CancelFlag cancel;
  cancel.cancel();
  EXPECT_EQ(generate_text((*loaded)->model(), (*loaded)->tokenizer(), config, {.cancel = &cancel}).status().code(),
            Code::kCancelled);
}

TEST_F(Inference, ErrorsNameWhatIsWrong) {
  EXPECT_EQ(load("/absent").status().reason(), "model.not_found");
  EXPECT_EQ(load("/bf16", "fp8_block").status().reason(), "model.recipe");
  auto loaded = load("/bf16");
  EXPECT_EQ(evaluate(**loaded, 65, 1).status().reason(), "eval.sequence_too_long");
  v1::GenerateConfig config;
  config.add_prompt_ids(259);
  EXPECT_EQ(
      generate_text((*loaded)->model(), (*loaded)->tokenizer(), config::with_defaults(config), {}).status().reason(),
      "tokenizer.id_out_of_range");
}

TEST(Characters, WholeAndMalformed) {
  EXPECT_EQ(whole_characters("ab\xC3"), 2u);
  EXPECT_EQ(whole_characters("ab\xC3\xA4"), 4u);
  EXPECT_EQ(whole_characters("\xE2\x82"), 0u);
  EXPECT_EQ(whole_characters("\xF0\x9F\x98"), 0u);
  EXPECT_EQ(whole_characters(""), 0u);
  EXPECT_EQ(replace_malformed("a\xFF\xC3\xA4\xE2\x82"), "a\xEF\xBF\xBD\xC3\xA4\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace invar
