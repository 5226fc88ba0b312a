#include "core/model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/glob.h"
#include "core/model/test_model.h"

namespace invar {
namespace {

using testing::gradients_of;
using testing::make_batch;
using testing::make_model;
using testing::must_step;
using testing::options_for;
using testing::small_shape;
using testing::small_shape_of;
using testing::TestBatch;

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += double{v} * v;
  return std::sqrt(sum);
}

// Largest difference of two gradients, relative to the norm of the first, over the tensors.
double worst_difference(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double squares = 0;
    for (size_t k = 0; k < a[i].size(); ++k) squares += std::pow(double{a[i][k]} - b[i][k], 2);
    worst = std::max(worst, std::sqrt(squares) / norm_of(a[i]));
  }
  return worst;
}

class Decoder : public ::testing::TestWithParam<ModelShape> {};

TEST_P(Decoder, LossAndLogitsEqualTheReference) {
  const ModelShape shape = GetParam();
  auto model = make_model(shape, options_for(Recipe::kFp32));
  const TestBatch batch = make_batch(shape.vocab, {13, 1, 9});
  const auto weights = testing::reference_weights(shape);
  const double expected = testing::reference_loss(shape, weights, batch.ids, batch.targets, batch.offsets);
  std::vector<float> token_loss(batch.ids.size());
  std::vector<int32_t> top1(batch.ids.size());
  const auto loss = model->evaluate(batch.view(), {token_loss.data(), top1.data()});
  ASSERT_TRUE(loss.ok()) << loss.status().message();
  EXPECT_EQ(loss->count, 23 - 3);
  EXPECT_NEAR(loss->sum, expected, 1e-6 * expected);
  EXPECT_NEAR(must_step(*model, batch).sum, expected, 1e-6 * expected);
  double sum = 0;
  for (float v : token_loss) sum += v;
  EXPECT_NEAR(sum, expected, 1e-5 * expected);

  std::vector<float> logits(batch.ids.size() * static_cast<size_t>(shape.vocab));
  ASSERT_TRUE(model->logits(batch.view(), logits.data()).ok());
  const auto reference = testing::reference_logits(shape, weights, std::span<const int32_t>(batch.ids).first(13));
  for (size_t i = 0; i < reference.size(); ++i) ASSERT_NEAR(logits[i], reference[i], 2e-5) << i;
  const auto first_row = logits.begin();
  EXPECT_EQ(top1[0], std::max_element(first_row, first_row + shape.vocab) - first_row);
}

// Central differences of the FP64 reference: error of order step^2.
TEST_P(Decoder, GradientsEqualCentralDifferences) {
  const ModelShape shape = GetParam();
  auto model = make_model(shape, options_for(Recipe::kFp32));
  const TestBatch batch = make_batch(shape.vocab, {7, 4});
  must_step(*model, batch, {true, true, 0.5f});
  auto weights = testing::reference_weights(shape);
  constexpr double kStep = 1e-4;
  Rng rng(5);
  for (const Parameter& parameter : model->parameters()) {
    std::vector<double>& values = weights[parameter.spec.name];
    const double scale = norm_of({parameter.gradient, parameter.gradient + parameter.count}) /
                         std::sqrt(static_cast<double>(parameter.count));
    for (int probe = 0; probe < 6; ++probe) {
      size_t element = rng.next_below(values.size());
      if (parameter.spec.role == ParameterRole::kEmbedding && probe < 3) {  // rows that were looked up
        element = static_cast<size_t>(batch.ids[probe] * shape.hidden) + element % static_cast<size_t>(shape.hidden);
      }
      const double kept = values[element];
      const auto loss_at = [&](double value) {
        values[element] = value;
        return testing::reference_loss(shape, weights, batch.ids, batch.targets, batch.offsets);
      };
      const double expected = 0.5 * (loss_at(kept + kStep) - loss_at(kept - kStep)) / (2 * kStep);
      values[element] = kept;
      EXPECT_NEAR(parameter.gradient[element], expected, 2e-5 * scale + 1e-5 * std::abs(expected))
          << parameter.spec.name << " element " << element;
    }
  }
}

std::vector<ModelShape> shapes() {
  std::vector<ModelShape> list{small_shape(true), small_shape(false)};
  for (const Family* family : families()) list.push_back(small_shape_of(std::string(family->name)));
  return list;
}

INSTANTIATE_TEST_SUITE_P(Families, Decoder, ::testing::ValuesIn(shapes()), [](const auto& info) {
  return info.param.family + (info.index == 0 ? "_tied" : info.index == 1 ? "_untied" : "");
});

// Every family: the same bits with recompute, and one token at a time through the cache gives the logits of a pass.
TEST_P(Decoder, RecomputeAndCacheAgreeWithThePlainPass) {
  const ModelShape shape = GetParam();
  const TestBatch batch = make_batch(shape.vocab, {15});
  auto model = make_model(shape, options_for(Recipe::kBf16));
  must_step(*model, batch);
  ModelOptions options = options_for(Recipe::kBf16);
  options.recompute = Recompute::kLayer;
  auto recomputing = make_model(shape, options, 1);
  must_step(*recomputing, batch);
  EXPECT_EQ(gradients_of(*recomputing), gradients_of(*model));
  EXPECT_TRUE(model->check_reached().ok()) << model->check_reached().message();

  auto exact = make_model(shape, options_for(Recipe::kFp32));
  const size_t vocab = static_cast<size_t>(shape.vocab);
  std::vector<float> all(batch.ids.size() * vocab), last(vocab);
  ASSERT_TRUE(exact->logits(batch.view(), all.data()).ok());
  auto cache = exact->new_cache(32);
  ASSERT_TRUE(cache.ok());
  for (size_t t = 0; t < batch.ids.size(); ++t) {
    ASSERT_TRUE(exact->extend(**cache, std::span(batch.ids).subspan(t, 1), last.data()).ok());
    for (size_t v = 0; v < vocab; ++v) ASSERT_NEAR(last[v], all[t * vocab + v], 2e-5) << "row " << t;
  }
}

TEST(DecoderModel, MicroBatchesOfAWindowAddUp) {
  for (Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
    const ModelShape shape = small_shape();
    auto model = make_model(shape, options_for(recipe));
    const TestBatch whole = make_batch(shape.vocab, {9, 6});
    const TestBatch first{
        {whole.ids.begin(), whole.ids.begin() + 9}, {whole.targets.begin(), whole.targets.begin() + 9}, {0, 9}};
    const TestBatch second{
        {whole.ids.begin() + 9, whole.ids.end()}, {whole.targets.begin() + 9, whole.targets.end()}, {0, 6}};
    const LossSum together = must_step(*model, whole);
    const auto expected = gradients_of(*model);
    const double norm_squared = *model->gradient_norm_squared();
    // Twice: the second window must not see the first.
    for (int window = 0; window < 2; ++window) {
      const LossSum a = must_step(*model, first, {true, false});
      EXPECT_FALSE(model->gradient_norm_squared().ok());
      const LossSum b = must_step(*model, second, {false, true});
      EXPECT_NEAR(a.sum + b.sum, together.sum, 1e-6 * together.sum);
      EXPECT_EQ(a.count + b.count, together.count);
      // Only the order of FP32 sums differs; in BF16 the activations are the same row by row.
      EXPECT_LT(worst_difference(expected, gradients_of(*model)), 1e-5);
      EXPECT_NEAR(*model->gradient_norm_squared(), norm_squared, 1e-5 * norm_squared);
    }
    EXPECT_TRUE(model->check_reached().ok());
    // Without an announced last one.
    must_step(*model, first, {true, false});
    must_step(*model, second, {false, false});
    ASSERT_TRUE(model->end_window().ok());
    EXPECT_NEAR(*model->gradient_norm_squared(), norm_squared, 1e-5 * norm_squared);
    EXPECT_EQ(model->end_window().reason(), "model.window_closed");
  }
}

TEST(DecoderModel, NormIsTheSumOverAllGradients) {
  for (bool tied : {false, true}) {
    const ModelShape shape = small_shape(tied);
    auto model = make_model(shape, options_for(Recipe::kBf16));
    const TestBatch batch = make_batch(shape.vocab, {9, 6});
    must_step(*model, batch, {true, false});
    must_step(*model, batch, {false, true});
    double expected = 0;
    for (const auto& gradient : gradients_of(*model)) expected += std::pow(norm_of(gradient), 2);
    EXPECT_NEAR(*model->gradient_norm_squared(), expected, 1e-12 * expected);
  }
}

TEST(DecoderModel, RecomputeAndThreadsKeepTheBits) {
  const ModelShape shape = small_shape();
  const TestBatch batch = make_batch(shape.vocab, {17, 20, 3});
  for (Recipe recipe : {Recipe::kFp32, Recipe::kBf16, Recipe::kFp8Tensor, Recipe::kFp8Block}) {
    ModelOptions options = options_for(recipe);
    auto one = make_model(shape, options, 1), three = make_model(shape, options, 3);
    options.recompute = Recompute::kLayer;
    auto again = make_model(shape, options, 2);
    const LossSum expected = must_step(*one, batch);
    for (Model* other : {static_cast<Model*>(three.get()), static_cast<Model*>(again.get())}) {
      EXPECT_EQ(must_step(*other, batch).sum, expected.sum) << recipe_name(recipe);
      EXPECT_EQ(gradients_of(*other), gradients_of(*one)) << recipe_name(recipe);
    }
    EXPECT_LT(again->memory_plan()[0].bytes, one->memory_plan()[0].bytes);
  }
}

// Rounding to 8 (BF16) or 4 bits (E4M3) of mantissa, averaged over many terms.
TEST(DecoderModel, LowPrecisionStaysNearFp32) {
  const ModelShape shape = small_shape();
  const TestBatch batch = make_batch(shape.vocab, {31, 30});
  auto exact = make_model(shape, options_for(Recipe::kFp32));
  const LossSum expected = must_step(*exact, batch);
  const auto gradients = gradients_of(*exact);
  const std::tuple<Recipe, double, double> bounds[] = {
      {Recipe::kBf16, 2e-3, 0.03}, {Recipe::kFp8Tensor, 2e-2, 0.5}, {Recipe::kFp8Block, 2e-2, 0.5}};
  double bf16_difference = 0;
  for (const auto& [recipe, loss_bound, gradient_bound] : bounds) {
    auto model = make_model(shape, options_for(recipe));
    EXPECT_NEAR(must_step(*model, batch).sum, expected.sum, loss_bound * expected.sum) << recipe_name(recipe);
    const double difference = worst_difference(gradients, gradients_of(*model));
    EXPECT_LT(difference, gradient_bound) << recipe_name(recipe);
    if (recipe == Recipe::kBf16) bf16_difference = difference;
    if (recipe != Recipe::kBf16) {
      EXPECT_GT(difference, 2 * bf16_difference) << recipe_name(recipe) << " does not quantise";
    }
  }
}

TEST(DecoderModel, SwitchesRecipesBetweenWindows) {
  const ModelShape shape = small_shape();
  const TestBatch batch = make_batch(shape.vocab, {20, 13});
  ModelOptions options = options_for(Recipe::kFp8Block);
  options.other_recipes = {Recipe::kBf16};
  auto model = make_model(shape, options);
  auto only_bf16 = make_model(shape, options_for(Recipe::kBf16));
  const double fp8 = must_step(*model, batch).sum;
  ASSERT_TRUE(model->use_recipe(Recipe::kBf16).ok());
  EXPECT_EQ(must_step(*model, batch).sum, must_step(*only_bf16, batch).sum);
  EXPECT_EQ(gradients_of(*model), gradients_of(*only_bf16));
  must_step(*model, batch, {true, false});
  EXPECT_EQ(model->use_recipe(Recipe::kFp8Block).reason(), "model.window_open");
  must_step(*model, batch, {false, true});
  ASSERT_TRUE(model->use_recipe(Recipe::kFp8Block).ok());
  EXPECT_EQ(must_step(*model, batch).sum, fp8);
  EXPECT_EQ(model->use_recipe(Recipe::kFp8Tensor).reason(), "model.recipes");
}

TEST(DecoderModel, KeepsNamedWeightsAndEndLayersInBf16) {
  const ModelShape shape = small_shape();
  const TestBatch batch = make_batch(shape.vocab, {20, 13});
  auto bf16 = make_model(shape, options_for(Recipe::kBf16));
  ModelOptions options = options_for(Recipe::kFp8Block);
  options.precision.keep_bf16 = {"*.q_proj.weight", "*.o_proj.weight", "*.mlp.*"};
  auto kept = make_model(shape, options);
  EXPECT_EQ(must_step(*kept, batch).sum, must_step(*bf16, batch).sum);
  options.precision.keep_bf16 = {};
  options.precision.first_layers_bf16 = options.precision.last_layers_bf16 = 1;
  auto ends = make_model(shape, options);
  EXPECT_EQ(must_step(*ends, batch).sum, must_step(*bf16, batch).sum);
  options.precision.last_layers_bf16 = 0;
  auto one_end = make_model(shape, options);
  EXPECT_NE(must_step(*one_end, batch).sum, must_step(*bf16, batch).sum);
}

TEST(DecoderModel, SeesWeightsThatChanged) {
  const ModelShape shape = small_shape();
  const TestBatch batch = make_batch(shape.vocab, {20, 13});
  for (Recipe recipe : {Recipe::kFp32, Recipe::kBf16, Recipe::kFp8Tensor}) {
    auto model = make_model(shape, options_for(recipe));
    const double before = must_step(*model, batch).sum;
    testing::TestWeights other(0.1f);
    ASSERT_TRUE(model->load(other, {}).ok());
    const double after = must_step(*model, batch).sum;
    EXPECT_NE(before, after);
    testing::TestWeights same;
    ASSERT_TRUE(model->load(same, {}).ok());
    EXPECT_EQ(must_step(*model, batch).sum, before);
  }
}

TEST(DecoderModel, QuantisesInputsAsServed) {
  const ModelShape shape = small_shape();
  const TestBatch batch = make_batch(shape.vocab, {9, 14});
  ModelOptions options = options_for(Recipe::kFp32);
  options.trainable = false;
  auto plain = make_model(shape, options);
  const auto loss_with = [&](const ServedInput& input, const char* pattern) {
    options.served_input = [=](const ParameterSpec& weight) {
      return glob_match(pattern, weight.name) ? input : ServedInput{};
    };
    auto served = make_model(shape, options);
    return served->evaluate(batch.view(), {})->sum;
  };
  const double exact = plain->evaluate(batch.view(), {})->sum;
  EXPECT_EQ(loss_with({}, "*"), exact);
  const ServedInput schemes[] = {{.granularity = Granularity::kRow},
                                 {.granularity = Granularity::kTensor},
                                 {.granularity = Granularity::kTensor, .scale_inv = 0.01f},
                                 {.granularity = Granularity::kBlock, .block_cols = 8}};
  std::vector<double> losses = {exact};
  for (const ServedInput& scheme : schemes) {
    losses.push_back(loss_with(scheme, "*"));
    EXPECT_NEAR(losses.back(), exact, 0.02 * exact);
    for (size_t i = 0; i + 1 < losses.size(); ++i) EXPECT_NE(losses.back(), losses[i]);
  }
  // A fused product asks all of its members; k_proj alone decides nothing but a static scale.
  EXPECT_EQ(loss_with(schemes[0], "*.k_proj.weight"), exact);
  EXPECT_NE(loss_with(schemes[0], "*.q_proj.weight"), exact);
  options.precision.recipe = Recipe::kBf16;
  EXPECT_EQ(DecoderModel::create(testing::open_device(), shape, options).status().reason(), "model.served_input");
}

TEST(DecoderModel, ShowsTheStreamAfterEachLayer) {
  const ModelShape shape = small_shape();
  const TestBatch batch = make_batch(shape.vocab, {9, 14});
  auto model = make_model(shape, options_for(Recipe::kBf16));
  std::vector<float> logits(batch.ids.size() * static_cast<size_t>(shape.vocab));
  std::vector<int64_t> layers;
  std::vector<double> norms;
  ASSERT_TRUE(model
                  ->logits(batch.view(), logits.data(),
                           [&](int64_t layer, const float* stream) -> Status {
                             layers.push_back(layer);
                             norms.push_back(norm_of({stream, stream + 23 * shape.hidden}));
                             return {};
                           })
                  .ok());
  EXPECT_EQ(layers, (std::vector<int64_t>{0, 1}));
  EXPECT_GT(norms[1], norms[0]);
  const auto stop = [](int64_t, const float*) { return Error(Code::kCancelled, "cancelled", "stop"); };
  EXPECT_EQ(model->logits(batch.view(), logits.data(), stop).reason(), "cancelled");
  must_step(*model, batch);
}

TEST(DecoderModel, RefusesABadBatchByNameAndExpectation) {
  const ModelShape shape = small_shape();
  auto model = make_model(shape, options_for(Recipe::kFp32, 16));
  const auto reason = [&](const TestBatch& batch) {
    return model->forward_backward(batch.view(), {}).status().reason();
  };
  TestBatch batch = make_batch(shape.vocab, {5, 5});
  batch.ids[3] = 61;
  EXPECT_EQ(reason(batch), "model.vocabulary");
  EXPECT_EQ(model->evaluate(batch.view(), {}).status().message(),
            "token id 61 at row 3: the model's vocabulary has 61 entries");
  batch = make_batch(shape.vocab, {5, 5});
  batch.targets[3] = 61;
  EXPECT_EQ(reason(batch), "model.vocabulary");
  batch = make_batch(shape.vocab, {5, 5});
  batch.offsets = {0, 5};
  EXPECT_EQ(reason(batch), "model.offsets");
  batch.offsets = {0, 5, 5, 10};
  EXPECT_EQ(reason(batch), "model.offsets");
  EXPECT_EQ(reason(make_batch(shape.vocab, {10, 10})), "model.tokens");
  EXPECT_EQ(reason({}), "model.tokens");
  EXPECT_EQ(model->forward_backward(make_batch(shape.vocab, {4}).view(), {false, true}).status().reason(),
            "model.window_closed");
  must_step(*model, make_batch(shape.vocab, {5, 5}));
}

TEST(DecoderModel, AllocatesNothingAfterTheFirstStep) {
  struct Counter {
    int64_t allocations = 0;
  } counter;
  DeviceOptions device_options;
  device_options.allocator = {
      &counter,
      [](void* user, size_t bytes, size_t alignment) {
        ++static_cast<Counter*>(user)->allocations;
        return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
      },
      [](void*, void* memory, size_t) { std::free(memory); },
  };
  const ModelShape shape = small_shape();
  for (Recipe recipe : {Recipe::kBf16, Recipe::kFp8Block}) {
    auto model = DecoderModel::create(testing::open_device(2, device_options), shape, options_for(recipe));
    ASSERT_TRUE(model.ok());
    testing::TestWeights weights;
    ASSERT_TRUE((*model)->load(weights, {}).ok());
    must_step(**model, make_batch(shape.vocab, {40, 24}));
    const int64_t after_first = counter.allocations;
    EXPECT_GT(after_first, 0);
    for (int step = 0; step < 3; ++step) {
      must_step(**model, make_batch(shape.vocab, {30, 2, 5}));
      must_step(**model, make_batch(shape.vocab, {40, 24}));
      ASSERT_TRUE((*model)->weights_changed().ok());
    }
    EXPECT_EQ(counter.allocations, after_first);
  }
}

}  // namespace
}  // namespace invar
