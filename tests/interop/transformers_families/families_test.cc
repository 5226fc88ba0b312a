// Model folders that transformers wrote, one of each family, give the logits, loss, gradients and text that
// transformers computed.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/model/generate.h"
#include "core/model/model.h"
#include "core/model/weights_folder.h"

namespace invar {
namespace {

std::string folder_of(std::string_view family) { return cat("tests/interop/transformers_families/", family, "/"); }

std::unique_ptr<FolderWeights> weights_in(const std::string& path, const ModelShape& shape) {
  // Bazel hands data over as links.
  auto folder = CheckpointFolder::open(posix_files(), path, {.limits = {}, .follow_links = true});
  EXPECT_TRUE(folder.ok()) << folder.status().message();
  auto weights = FolderWeights::create(*std::move(folder), shape);
  EXPECT_TRUE(weights.ok()) << weights.status().message();
  return *std::move(weights);
}

std::unique_ptr<Model> load_model(std::string_view family, Recipe recipe) {
  const std::string path = folder_of(family) + "model";
  const auto shape = read_model_shape(posix_files(), path);
  EXPECT_TRUE(shape.ok()) << shape.status().message();
  auto device = Device::open("cpu", std::make_shared<ThreadPool>(2));
  EXPECT_TRUE(device.ok());
  ModelOptions options;
  options.precision.recipe = recipe;
  options.max_tokens = 64;
  auto model = Model::create(*device, *shape, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  EXPECT_TRUE((*model)->load(*weights_in(path, *shape)).ok());
  return *std::move(model);
}

struct Recorded {
  nlohmann::json json;
  std::vector<int32_t> ids, targets, offsets;

  explicit Recorded(std::string_view family) {
    std::ifstream file(folder_of(family) + "expected.json");
    json = nlohmann::json::parse(file);
    ids = json["ids"].get<std::vector<int32_t>>();
    targets.assign(ids.begin() + 1, ids.end());
    targets.push_back(-1);
    offsets = {0, static_cast<int32_t>(ids.size())};
  }
};

class TransformersFamilies : public ::testing::TestWithParam<std::string_view> {};

TEST_P(TransformersFamilies, LogitsAgree) {
  const Recorded recorded(GetParam());
  // FP32: two orders of summation. BF16 keeps 8 bits; the largest logits are about 6.
  for (const auto& [recipe, bound] : {std::pair(Recipe::kFp32, 1e-4), std::pair(Recipe::kBf16, 0.15)}) {
    auto model = load_model(GetParam(), recipe);
    const size_t vocab = static_cast<size_t>(model->shape().vocab);
    std::vector<float> logits(recorded.ids.size() * vocab);
    const Status status = model->logits({recorded.ids, {}, recorded.offsets, {}}, logits.data());
    ASSERT_TRUE(status.ok()) << status.message();
    double worst = 0;
    for (size_t i = 0; i < recorded.json["logit_rows"].size(); ++i) {
      const size_t row = recorded.json["logit_rows"][i];
      for (size_t v = 0; v < vocab; ++v) {
        worst = std::max(worst, std::abs(logits[row * vocab + v] - recorded.json["logits"][i][v].get<double>()));
      }
    }
    std::printf("%s: largest difference of a logit %.2e\n", std::string(recipe_name(recipe)).c_str(), worst);
    EXPECT_LT(worst, bound);
    EXPECT_GT(worst, 0);
  }
}

TEST_P(TransformersFamilies, LossAndEveryGradientAgree) {
  const Recorded recorded(GetParam());
  auto model = load_model(GetParam(), Recipe::kFp32);
  const auto loss = model->forward_backward({recorded.ids, recorded.targets, recorded.offsets, {}}, {});
  ASSERT_TRUE(loss.ok()) << loss.status().message();
  const double expected_loss = recorded.json["loss_sum"];
  EXPECT_NEAR(loss->sum, expected_loss, 2e-6 * expected_loss);
  EXPECT_TRUE(model->check_reached().ok()) << model->check_reached().message();
  auto gradients = weights_in(folder_of(GetParam()) + "gradients", model->shape());
  double worst = 0;
  for (size_t index = 0; index < model->parameters().size(); ++index) {
    const Parameter& parameter = model->parameters()[index];
    std::vector<float> expected(static_cast<size_t>(parameter.count));
    ASSERT_TRUE(gradients->read(index, parameter.spec, 0, parameter.count, expected.data()).ok());
    double squares = 0, difference = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      squares += double{expected[i]} * expected[i];
      difference += std::pow(double{parameter.gradient[i]} - expected[i], 2);
    }
    const double relative = std::sqrt(difference / squares);
    EXPECT_LT(relative, 1e-3) << parameter.spec.name;
    worst = std::max(worst, relative);
  }
  std::printf("largest relative difference of a gradient %.2e\n", worst);
}

TEST_P(TransformersFamilies, GreedyTextAgrees) {
  const Recorded recorded(GetParam());
  auto model = load_model(GetParam(), Recipe::kFp32);
  const size_t prompt = recorded.json["greedy_prompt"];
  const auto greedy = recorded.json["greedy"].get<std::vector<int32_t>>();
  const auto result =
      generate(*model, std::span(recorded.ids).first(prompt), {.max_new_tokens = static_cast<int64_t>(greedy.size())});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->tokens, greedy);
}

std::vector<std::string_view> names() {
  std::vector<std::string_view> list;
  for (const Family* family : families()) list.push_back(family->name);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Families, TransformersFamilies, ::testing::ValuesIn(names()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace invar
