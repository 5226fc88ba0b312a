#include "core/train/learner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/train/fake_model.h"

namespace invar {
namespace {

class LearnerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto pool = std::make_shared<ThreadPool>(1);
    auto device = Device::open("cpu", pool);
    ASSERT_TRUE(device.ok()) << device.status().message();
    auto fake = std::make_unique<FakeModel>(*device);
    model = fake.get();
    auto made = Learner::create(std::move(fake), {.adamw = {.weight_decay = 0}, .clip_norm = 0});
    ASSERT_TRUE(made.ok()) << made.status().message();
    learner = *std::move(made);
    RandomWeights source(3, pool);
    ASSERT_TRUE(learner->load(source).ok());
  }
  Result<StepOutcome> run(int64_t micro_batches, bool announced = true) {
    INVAR_TRY(learner->begin_window(announced ? micro_batches : 0));
    for (int64_t i = 0; i < micro_batches; ++i) INVAR_TRY(learner->forward_backward({}).status());
    return learner->step(1e-2);
  }
  std::vector<float> state() const {
    std::vector<float> all;
    const std::vector<int64_t> counts = {FakeModel::kMatrix, FakeModel::kGain};
    for (size_t p = 0; p < counts.size(); ++p) {
      for (const float* values : {learner->master(p), learner->m(p), learner->v(p)}) {
        all.insert(all.end(), values, values + counts[p]);
      }
    }
    return all;
  }
  std::unique_ptr<Learner> learner;
  FakeModel* model = nullptr;
};

TEST_F(LearnerTest, LossAndGradientAreTokenMeansOverTheWindow) {
  // Means of means would give a loss of 2.5 and a norm by (8/4 + 2/1) / 2.
  model->script = {{8, 0, {.sum = 8, .count = 4}}, {2, 0, {.sum = 3, .count = 1}}};
  const auto outcome = run(2);
  ASSERT_TRUE(outcome.ok()) << outcome.status().message();
  EXPECT_DOUBLE_EQ(outcome->loss, 11.0 / 5);
  EXPECT_EQ(outcome->tokens, 5);
  EXPECT_DOUBLE_EQ(outcome->grad_norm, std::sqrt(8.0) * 10 / 5);
  EXPECT_FLOAT_EQ(learner->m(0)[0], 0.1f * 10 / 5);
}

TEST_F(LearnerTest, OpenEndedWindowGivesTheSameStep) {
  model->script = {{8, 1, {.sum = 8, .count = 4}}, {2, 3, {.sum = 3, .count = 1}}};
  const auto announced = run(2);
  ASSERT_TRUE(announced.ok());
  const auto first = state();
  SetUp();
  model->script = {{8, 1, {.sum = 8, .count = 4}}, {2, 3, {.sum = 3, .count = 1}}};
  const auto open = run(2, /*announced=*/false);
  ASSERT_TRUE(open.ok()) << open.status().message();
  EXPECT_EQ(open->grad_norm, announced->grad_norm);
  EXPECT_EQ(state(), first);
}

TEST_F(LearnerTest, NonFiniteGradientSkipsAndTouchesNothing) {
  model->script = {{1, 1, {.sum = 4, .count = 2}}};
  ASSERT_TRUE(run(1).ok());
  const auto before = state();
  const auto working = model->working();
  const int changes = model->weight_changes;
  model->script = {{1, std::numeric_limits<float>::infinity(), {.sum = 4, .count = 2}}};
  const auto outcome = run(1);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->skipped);
  EXPECT_EQ(outcome->first_bad, "g");
  EXPECT_EQ(learner->steps(), 1);
  EXPECT_EQ(state(), before);
  EXPECT_EQ(model->working(), working);
  EXPECT_EQ(model->weight_changes, changes);
}

TEST_F(LearnerTest, NonFiniteLossSkipsToo) {
  model->script = {{1, 1, {.sum = std::nan(""), .count = 2}}};
  const auto outcome = run(1);
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->skipped);
  EXPECT_EQ(outcome->first_bad, "the loss");
}

TEST_F(LearnerTest, WindowsAreOpenedFilledAndClosed) {
  model->script = {{1, 1, {.sum = 4, .count = 2}}};
  EXPECT_EQ(learner->forward_backward({}).status().reason(), "train.window_closed");
  EXPECT_EQ(learner->step(1).status().reason(), "train.window_closed");
  ASSERT_TRUE(learner->begin_window(2).ok());
  ASSERT_TRUE(learner->forward_backward({}).ok());
  EXPECT_EQ(learner->step(1).status().reason(), "train.window_incomplete");
  ASSERT_TRUE(learner->forward_backward({}).ok());
  EXPECT_EQ(learner->forward_backward({}).status().reason(), "train.window_closed");
  EXPECT_TRUE(learner->step(1).ok());
  ASSERT_TRUE(learner->begin_window(0).ok());
  EXPECT_EQ(learner->step(1).status().reason(), "train.window_incomplete");
}

TEST_F(LearnerTest, AllTargetsMaskedIsAnErrorThatTouchesNothing) {
  model->script = {{0, 0, {.sum = 0, .count = 0}}};
  const auto before = state();
  EXPECT_EQ(run(1).status().reason(), "train.no_tokens");
  EXPECT_EQ(state(), before);
}

TEST_F(LearnerTest, ClippingScalesTheMeanGradient) {
  auto pool = std::make_shared<ThreadPool>(1);
  auto fake = std::make_unique<FakeModel>(*Device::open("cpu", pool));
  fake->script = {{30, 40, {.sum = 1, .count = 1}}};
  auto clipped = *Learner::create(std::move(fake), {.adamw = {.weight_decay = 0}, .clip_norm = 1});
  RandomWeights source(3, pool);
  ASSERT_TRUE(clipped->load(source).ok());
  ASSERT_TRUE(clipped->begin_window(1).ok());
  ASSERT_TRUE(clipped->forward_backward({}).ok());
  const auto outcome = clipped->step(1e-2);
  ASSERT_TRUE(outcome.ok());
  const double norm = std::sqrt(8 * 900.0 + 4 * 1600.0);
  EXPECT_DOUBLE_EQ(outcome->grad_norm, norm);
  EXPECT_DOUBLE_EQ(outcome->clip_factor, 1 / (norm + 1e-6));
  EXPECT_FLOAT_EQ(clipped->m(0)[0], static_cast<float>(0.1 * 30 / norm));
}

TEST_F(LearnerTest, RestoredStateContinuesBitForBit) {
  model->script = {{0.3f, 0.7f, {.sum = 4, .count = 2}}};
  ASSERT_TRUE(run(1).ok());
  const auto saved = state();
  ASSERT_TRUE(run(1).ok());
  const auto expected = state();
  const auto expected_working = model->working();
  SetUp();
  size_t at = 0;
  const std::vector<int64_t> counts = {FakeModel::kMatrix, FakeModel::kGain};
  for (size_t p = 0; p < counts.size(); ++p) {
    for (float* values : {learner->master(p), learner->m(p), learner->v(p)}) {
      for (int64_t i = 0; i < counts[p]; ++i) values[i] = saved[at++];
    }
  }
  ASSERT_TRUE(learner->restored(1).ok());
  model->script = {{0.3f, 0.7f, {.sum = 4, .count = 2}}};
  ASSERT_TRUE(run(1).ok());
  EXPECT_EQ(state(), expected);
  EXPECT_EQ(model->working(), expected_working);
}

}  // namespace
}  // namespace invar
