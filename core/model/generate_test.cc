#include "core/model/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/model/test_model.h"

namespace invar {
namespace {

using testing::make_model;
using testing::options_for;
using testing::small_shape;

// The next tokens without a cache: the whole text through the model each time.
std::vector<int32_t> generate_without_cache(Model& model, std::vector<int32_t> text, int64_t count) {
  std::vector<int32_t> made;
  const size_t vocab = static_cast<size_t>(model.shape().vocab);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t offsets[2] = {0, static_cast<int32_t>(text.size())};
    std::vector<float> logits(text.size() * vocab);
    EXPECT_TRUE(model.logits({text, {}, offsets, {}}, logits.data()).ok());
    const auto row = logits.end() - static_cast<ptrdiff_t>(vocab);
    made.push_back(static_cast<int32_t>(std::max_element(row, logits.end()) - row));
    text.push_back(made.back());
  }
  return made;
}

TEST(Generate, CacheGivesTheTextOfTheWholeModel) {
  for (Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
    auto model = make_model(small_shape(), options_for(recipe));
    const std::vector<int32_t> prompt = {5, 17, 3, 44, 9, 60, 0, 1, 12};
    const auto result = generate(*model, prompt, {.max_new_tokens = 40});
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->tokens, generate_without_cache(*model, prompt, 40)) << recipe_name(recipe);
    EXPECT_EQ(result->reason, StopReason::kLength);
  }
}

TEST(Generate, PromptLongerThanAPassGoesInPieces) {
  ModelOptions options = options_for(Recipe::kFp32, 4);
  options.max_positions = 64;
  auto pieces = make_model(small_shape(), options);
  auto whole = make_model(small_shape(), options_for(Recipe::kFp32));
  const std::vector<int32_t> prompt = {5, 17, 3, 44, 9, 60, 0, 1, 12, 8, 7};
  const GenerateOptions generation{.max_new_tokens = 12};
  EXPECT_EQ(generate(*pieces, prompt, generation)->tokens, generate(*whole, prompt, generation)->tokens);
}

TEST(Generate, WorksWithAModelThatIsNotTrainable) {
  ModelOptions options = options_for(Recipe::kBf16);
  auto trained = make_model(small_shape(false), options);
  options.trainable = false;
  auto served = make_model(small_shape(false), options);
  EXPECT_EQ(served->memory().gradients, 0);
  EXPECT_EQ(served->forward_backward({}, {}).status().reason(), "model.not_trainable");
  const std::vector<int32_t> prompt = {1, 2};
  EXPECT_EQ(generate(*served, prompt, {.max_new_tokens = 9})->tokens,
            generate(*trained, prompt, {.max_new_tokens = 9})->tokens);
}

TEST(Generate, StopsAtATokenACallbackOrACancel) {
  auto model = make_model(small_shape(), options_for(Recipe::kFp32));
  const std::vector<int32_t> prompt = {5, 17};
  const auto all = generate(*model, prompt, {.max_new_tokens = 20})->tokens;
  const auto third = std::find(all.begin(), all.end(), all[3]);

  GenerateOptions options{.max_new_tokens = 20};
  options.stop_tokens = {all[3]};
  auto result = generate(*model, prompt, options);
  EXPECT_EQ(result->reason, StopReason::kStopToken);
  EXPECT_EQ(result->tokens, std::vector<int32_t>(all.begin(), third));

  options = {.max_new_tokens = 20};
  std::vector<int32_t> seen;
  options.on_token = [&](int32_t token) {
    seen.push_back(token);
    return seen.size() < 5;
  };
  result = generate(*model, prompt, options);
  EXPECT_EQ(result->reason, StopReason::kCallback);
  EXPECT_EQ(result->tokens, seen);
  EXPECT_EQ(seen, std::vector<int32_t>(all.begin(), all.begin() + 5));

  CancelFlag cancel;
  options.cancel = &cancel;
  options.on_token = [&](int32_t) {
    cancel.cancel();
    return true;
  };
  result = generate(*model, prompt, options);
  EXPECT_EQ(result->reason, StopReason::kCancelled);
  EXPECT_EQ(result->tokens.size(), 1u);
}

TEST(Generate, RefusesWhatDoesNotFit) {
  auto model = make_model(small_shape(), options_for(Recipe::kFp32));
  const std::vector<int32_t> prompt = {5, 17};
  EXPECT_EQ(generate(*model, {}, {}).status().reason(), "generate.empty_prompt");
  EXPECT_EQ(generate(*model, prompt, {.max_new_tokens = 63}).status().message(),
            "prompt of 2 tokens and 63 new ones: expected at most 64 together");
  EXPECT_TRUE(generate(*model, prompt, {.max_new_tokens = 62}).ok());
  EXPECT_EQ(generate(*model, std::vector<int32_t>{61}, {.max_new_tokens = 1}).status().reason(), "model.vocabulary");
  GenerateOptions options{.max_new_tokens = 1};
  options.sampling.temperature = -1;
  EXPECT_EQ(generate(*model, prompt, options).status().reason(), "generate.options");
  options.sampling = {.temperature = 1, .top_p = 0};
  EXPECT_EQ(generate(*model, prompt, options).status().reason(), "generate.options");
}

TEST(Generate, SameSeedSameText) {
  auto model = make_model(small_shape(), options_for(Recipe::kFp32));
  const std::vector<int32_t> prompt = {5, 17};
  GenerateOptions options{.max_new_tokens = 30};
  options.sampling = {.temperature = 1.0, .seed = 1};
  const auto first = generate(*model, prompt, options)->tokens;
  EXPECT_EQ(generate(*model, prompt, options)->tokens, first);
  options.sampling.seed = 2;
  EXPECT_NE(generate(*model, prompt, options)->tokens, first);
}

// Frequencies of 20000 draws: 4 standard deviations are 4 * sqrt(p (1 - p) / n) < 0.015.
TEST(Sampler, DrawsByTheProbabilitiesThatAreLeft) {
  constexpr int kDraws = 20000;
  const std::vector<float> logits = {0.0f, 2.0f, 1.0f, NAN, -1.0f, -INFINITY};
  const auto frequencies = [&](SamplingOptions options) {
    std::vector<double> counts(logits.size());
    Sampler sampler(options);
    for (int i = 0; i < kDraws; ++i) counts[static_cast<size_t>(*sampler.pick(logits))] += 1.0 / kDraws;
    return counts;
  };
  const auto expect = [&](const SamplingOptions& options, const std::vector<double>& weights) {
    const auto counts = frequencies(options);
    double total = 0;
    for (double weight : weights) total += weight;
    for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(counts[i], weights[i] / total, 0.015) << i;
  };
  const double e0 = 1, e1 = std::exp(1), e2 = std::exp(2), em = std::exp(-1);
  expect({.temperature = 1}, {e0, e2, e1, 0, em, 0});
  expect({.temperature = 0.5}, {e0, e2 * e2, e1 * e1, 0, em * em, 0});
  expect({.temperature = 1, .top_k = 2}, {0, e2, e1, 0, 0, 0});
  // 0.64, 0.24, 0.09, 0.03: the first two hold 0.88.
  expect({.temperature = 1, .top_p = 0.85}, {0, e2, e1, 0, 0, 0});
  expect({.temperature = 1, .top_p = 0.6}, {0, 1, 0, 0, 0, 0});
  EXPECT_EQ(*Sampler({}).pick(logits), 1);
  EXPECT_EQ(Sampler({}).pick(std::vector<float>{NAN, INFINITY}).status().reason(), "generate.not_finite");
}

}  // namespace
}  // namespace invar
