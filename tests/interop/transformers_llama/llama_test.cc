// A model folder that transformers wrote gives the logits, the loss and the text that transformers computed.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/model/generate.h"
#include "core/model/model.h"
#include "core/model/weights_folder.h"

namespace invar {
namespace {

const std::string kFolder = "tests/interop/transformers_llama/";

std::unique_ptr<Model> load_model(Recipe recipe) {
  const auto shape = read_model_shape(posix_files(), kFolder + "model");
  EXPECT_TRUE(shape.ok()) << shape.status().message();
  EXPECT_EQ(shape->head_dim, 16);
  EXPECT_EQ(shape->rope_theta, 50000.0);
  auto device = Device::open("cpu", std::make_shared<ThreadPool>(2));
  EXPECT_TRUE(device.ok());
  ModelOptions options;
  options.precision.recipe = recipe;
  options.trainable = false;
  options.max_tokens = 64;
  auto model = Model::create(*device, *shape, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  // Bazel hands data over as links.
  auto folder = CheckpointFolder::open(posix_files(), kFolder + "model", {.limits = {}, .follow_links = true});
  EXPECT_TRUE(folder.ok()) << folder.status().message();
  auto weights = FolderWeights::create(*std::move(folder), *shape);
  EXPECT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_TRUE((*model)->load(**weights).ok());
  return *std::move(model);
}

struct Recorded {
  nlohmann::json json;
  std::vector<int32_t> ids, targets, offsets;

  Recorded() {
    std::ifstream file(kFolder + "expected.json");
    json = nlohmann::json::parse(file);
    ids = json["ids"].get<std::vector<int32_t>>();
    targets.assign(ids.begin() + 1, ids.end());
    targets.push_back(-1);
    offsets = {0, static_cast<int32_t>(ids.size())};
  }
};

TEST(TransformersLlama, LogitsAgree) {
  const Recorded recorded;
  // FP32: two different orders of summation. BF16 keeps 8 bits; the largest logit is about 6.
  for (const auto& [recipe, bound] : {std::pair(Recipe::kFp32, 1e-4), std::pair(Recipe::kBf16, 0.1)}) {
    auto model = load_model(recipe);
    const size_t vocab = static_cast<size_t>(model->shape().vocab);
    std::vector<float> logits(recorded.ids.size() * vocab);
    const Status status = model->logits({recorded.ids, {}, recorded.offsets, {}}, logits.data());
    ASSERT_TRUE(status.ok()) << status.message();
    double worst = 0;
    for (size_t i = 0; i < recorded.json["logit_rows"].size(); ++i) {
      const size_t row = recorded.json["logit_rows"][i];
      for (size_t v = 0; v < vocab; ++v) {
        const double expected = recorded.json["logits"][i][v];
        worst = std::max(worst, std::abs(logits[row * vocab + v] - expected));
      }
    }
    std::printf("%s: largest difference of a logit %.2e\n", std::string(recipe_name(recipe)).c_str(), worst);
    EXPECT_LT(worst, bound);
    EXPECT_GT(worst, 0);
  }
}

TEST(TransformersLlama, LossAndGreedyTextAgree) {
  const Recorded recorded;
  auto model = load_model(Recipe::kFp32);
  const auto loss = model->evaluate({recorded.ids, recorded.targets, recorded.offsets, {}});
  ASSERT_TRUE(loss.ok()) << loss.status().message();
  const double expected = recorded.json["loss_sum"];
  EXPECT_NEAR(loss->sum, expected, 1e-6 * expected);
  const size_t prompt = recorded.json["greedy_prompt"];
  const auto greedy = recorded.json["greedy"].get<std::vector<int32_t>>();
  const auto result =
      generate(*model, std::span(recorded.ids).first(prompt), {.max_new_tokens = static_cast<int64_t>(greedy.size())});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->tokens, greedy);
}

}  // namespace
}  // namespace invar
