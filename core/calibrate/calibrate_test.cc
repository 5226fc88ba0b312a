#include "core/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/memory_files.h"
#include "core/calibrate/activation_scheme.h"
#include "core/checkpoint/convert.h"
#include "core/checkpoint/quantized_writer.h"
#include "core/model/weights_folder.h"
#include "core/text/byte_tokenizer.h"

namespace invar {
namespace {

// A small Llama with random weights of ordinary size, as BF16 folder and as FP8 folders of three layouts.
class Calibrate : public testing::Test {
 protected:
  Calibrate() : pool(std::make_shared<ThreadPool>(2)) {
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
    write("/bf16", 1.0f);
    std::string text;
    for (int i = 0; i < 40; ++i) text += cat("verse ", i, " and so on\n");
    files.put("/text.txt", text);
  }

  // The embedding, which is the head too, is multiplied by `factor`. Also as /fp8-block, /fp8-tensor, /fp8-channel.
  void write(const std::string& target, float factor) {
    ModelFolder folder;
    folder.config = write_model_config(shape, "bfloat16").value();
    RandomWeights random(1, pool, 0.05f);
    const auto parameters = parameters_of(shape);
    std::vector<std::vector<float>> values(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      values[i].resize(static_cast<size_t>(parameters[i].count()));
      EXPECT_TRUE(random.read(i, parameters[i], 0, parameters[i].count(), values[i].data()).ok());
      if (parameters[i].name.find("embed_tokens") != std::string::npos) {
        for (float& value : values[i]) value *= factor;
      }
      folder.tensors.push_back(
          tensor_in_memory(parameters[i].name, parameters[i].shape, DType::kF32, values[i].data()));
    }
    EXPECT_TRUE(write_model_folder(files, target, folder, {}).ok());
    save_tokenizer(target);
    if (target != "/bf16") return;
    for (const auto& [name, layout] : {std::pair{"block", Fp8Layout::kBlock}, std::pair{"tensor", Fp8Layout::kTensor},
                                       std::pair{"channel", Fp8Layout::kChannel}}) {
      QuantizedOptions options;
      options.layout = layout;
      const std::string path = cat("/fp8-", name);
      EXPECT_TRUE(write_quantized_model(files, path, folder, options, {}).ok());
      save_tokenizer(path);
    }
  }

  void save_tokenizer(const std::string& folder) {
    EXPECT_TRUE(
        write_text_atomically(files, join_path(folder, "tokenizer.json"), ByteTokenizer::tokenizer_json()).ok());
  }

  v1::CalibrateConfig config_for(const std::string& source, const std::string& destination) {
    v1::CalibrateConfig config;
    config.set_source(source);
    config.set_destination(destination);
    config.mutable_data()->add_paths("/text.txt");
    config.mutable_data()->set_sequence_length(32);
    return config;
  }

  Result<v1::CalibrateReport> run(const std::string& source, const std::string& destination) {
    return calibrate(config_for(source, destination), {files, pool});
  }

  std::shared_ptr<ThreadPool> pool;
  ModelShape shape;
  MemoryFiles files;
};

TEST_F(Calibrate, AConvertedCheckpointIsAsGoodAsItsSource) {
  for (const std::string layout : {"block", "tensor", "channel"}) {
    v1::ConvertConfig convert_config;
    convert_config.set_source("/fp8-" + layout);
    convert_config.set_destination("/converted-" + layout);
    const auto converted = convert(convert_config, {files, *pool});
    ASSERT_TRUE(converted.ok()) << converted.status().message();
    const auto report = run("/fp8-" + layout, "/converted-" + layout);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_TRUE(report->passed()) << layout << ": " << report->verdict();
    EXPECT_LT(std::fabs(report->loss_delta()), 0.002) << layout;
    EXPECT_LT(report->kl_mean(), 1e-3) << layout;
    EXPECT_GT(report->top1_agreement(), 0.8) << layout;  // random weights leave many near ties
    EXPECT_EQ(report->layers_size(), 2);
    // Quantised activations show after every layer, and only as rounding.
    for (const auto& layer : report->layers()) EXPECT_GT(layer.sqnr_db(), 20) << layout;
    // BF16 against the exact weights: closer than against what is served.
    EXPECT_NEAR(report->weight_only_loss(), report->destination_loss(), 2e-3) << layout;
    EXPECT_EQ(report->tokens(), report->sequences() * 32);
  }
}

TEST_F(Calibrate, TheSameFolderTwiceDiffersInNothing) {
  const auto report = run("/bf16", "/bf16");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->passed());
  EXPECT_EQ(report->loss_delta(), 0);
  EXPECT_NEAR(report->kl_max(), 0, 1e-12);
  EXPECT_EQ(report->top1_agreement(), 1);
  EXPECT_FALSE(report->has_weight_only_loss());
  EXPECT_FALSE(report->layers(0).has_sqnr_db());  // infinite
}

TEST_F(Calibrate, ADamagedDestinationFailsTheGateAndIsAResult) {
  write("/damaged", 30.0f);
  const auto report = run("/fp8-block", "/damaged");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->passed());
  EXPECT_NE(report->verdict().find("outside"), std::string::npos) << report->verdict();
  EXPECT_GT(report->kl_mean(), 0.01);
}

TEST_F(Calibrate, TheKlGateDecidesToo) {
  auto config = config_for("/fp8-tensor", "/bf16");
  config.set_max_loss_delta(10);
  config.set_max_kl(1e-9);
  const auto report = calibrate(config, {files, pool});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->passed());
}

TEST_F(Calibrate, TooFewTokensAreSaid) {
  auto config = config_for("/fp8-block", "/bf16");
  config.set_max_tokens(32);
  config.set_max_loss_delta(1e-6);
  const auto report = calibrate(config, {files, pool});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->tokens(), 32);
  ASSERT_GT(report->warnings_size(), 0);
  EXPECT_NE(report->warnings(0).find("too few"), std::string::npos);
}

TEST_F(Calibrate, SchemesFollowTheDeclaredConfig) {
  const struct {
    const char* path;
    const char* words;
  } expected[] = {{"/fp8-block", "e4m3 in 1x128 blocks"},
                  {"/fp8-tensor", "e4m3 per token"},
                  {"/fp8-channel", "e4m3 per token"},
                  {"/bf16", "none"}};
  for (const auto& each : expected) {
    auto folder = CheckpointFolder::open(files, each.path);
    ASSERT_TRUE(folder.ok());
    const auto layout = classify(*folder, {});
    const auto declared = read_declared(*folder);
    ASSERT_TRUE(layout.ok() && declared.ok());
    const TensorPlan* plan = layout->find("model.layers.0.mlp.up_proj.weight");
    ASSERT_NE(plan, nullptr);
    const auto scheme = activation_scheme(*folder, *declared, *plan);
    ASSERT_TRUE(scheme.ok()) << scheme.status().message();
    EXPECT_EQ(scheme->words(), each.words) << each.path;
  }
}

TEST_F(Calibrate, ErrorsNameWhatIsWrong) {
  EXPECT_EQ(run("/absent", "/bf16").status().reason(), "model.not_found");
  EXPECT_EQ(run("/bf16", "").status().reason(), "config.missing_field");
  auto config = config_for("/bf16", "/bf16");
  config.mutable_data()->set_sequence_length(65);
  EXPECT_EQ(calibrate(config, {files, pool}).status().reason(), "calibrate.sequence_too_long");
  files.put("/empty.txt", "");
  config = config_for("/bf16", "/bf16");
  config.mutable_data()->set_paths(0, "/empty.txt");
  EXPECT_EQ(calibrate(config, {files, pool}).status().reason(), "text.empty");
  CancelFlag cancel;
  cancel.cancel();
  EXPECT_EQ(calibrate(config_for("/bf16", "/bf16"), {files, pool, {}, &cancel}).status().code(), Code::kCancelled);
}

}  // namespace
}  // namespace invar
