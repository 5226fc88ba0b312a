// The head with its loss against FP64 loops, on every level this machine has.
#include "core/device/cpu/head_loss/head_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/device/cpu/level.h"
#include "core/device/cpu/matmul/matmul.h"
#include "core/device/cpu/testing/test_context.h"

namespace invar::cpu {
namespace {

std::vector<Level> levels() {
  std::vector<Level> usable;
  for (int i = 0; i <= static_cast<int>(usable_level()); ++i) usable.push_back(static_cast<Level>(i));
  return usable;
}

struct Problem {
  int32_t dtype = kF32;
  int64_t tokens = 9, hidden = 19, vocab = 37, valid_vocab = 0;
  float soft_cap = 0, grad_scale = 1, logit_size = 1;
  bool packed = false, accumulate = false, gradients = true;
  int threads = 2;
};

struct Output {
  double loss_sum = -1;
  int64_t loss_count = -1;
  std::vector<float> token_loss, d_weight;
  std::vector<int32_t> top1;
  Stored d_x{kF32, 0};
};

std::vector<int32_t> targets_of(const Problem& problem) {
  std::vector<int32_t> targets;
  const int64_t limit = problem.valid_vocab != 0 ? problem.valid_vocab : problem.vocab;
  for (int64_t t = 0; t < problem.tokens; ++t) {
    targets.push_back(t % 4 == 2 ? -100 : static_cast<int32_t>((t * 7 + 3) % limit));
  }
  return targets;
}

Stored inputs_of(const Problem& problem) {
  return Stored(problem.dtype, random_floats(static_cast<size_t>(problem.tokens * problem.hidden), 5));
}

Stored weight_of(const Problem& problem) {
  const float scale = problem.logit_size / std::sqrt(static_cast<float>(problem.hidden));
  return Stored(problem.dtype, random_floats(static_cast<size_t>(problem.vocab * problem.hidden), 6, scale));
}

Output run(const Problem& problem, Level level) {
  TestContext context(problem.threads, level);
  const MatmulEngine& engine = engine_for(level, problem.dtype);
  Stored x = inputs_of(problem), weight = weight_of(problem);
  const std::vector<int32_t> targets = targets_of(problem);
  Output out;
  out.token_loss.assign(static_cast<size_t>(problem.tokens), -7);
  out.top1.assign(static_cast<size_t>(problem.tokens), -7);
  out.d_x = Stored(problem.dtype, static_cast<size_t>(problem.tokens * problem.hidden), 99);
  out.d_weight.assign(static_cast<size_t>(problem.vocab * problem.hidden), 0.5f);
  invar_head_loss_args args{};
  args.struct_size = sizeof(args);
  args.dtype = problem.dtype;
  args.accumulate_d_weight = problem.accumulate;
  args.tokens = problem.tokens;
  args.hidden = problem.hidden;
  args.vocab = problem.vocab;
  args.valid_vocab = problem.valid_vocab;
  args.x = x.data();
  args.weight = weight.data();
  args.targets = targets.data();
  args.soft_cap = problem.soft_cap;
  args.grad_scale = problem.grad_scale;
  args.loss_sum = &out.loss_sum;
  args.loss_count = &out.loss_count;
  args.token_loss = out.token_loss.data();
  args.top1 = out.top1.data();
  if (problem.gradients) {
    args.d_x = out.d_x.data();
    args.d_weight = out.d_weight.data();
  }
  std::vector<char> forward, dgrad;
  if (problem.packed) {
    forward.resize(packed_bytes(engine, problem.dtype, problem.hidden, problem.vocab));
    dgrad.resize(packed_bytes(engine, problem.dtype, problem.vocab, problem.hidden));
    pack_with(engine, context.get(), forward.data(), {weight.data(), problem.hidden, problem.dtype, 1}, problem.hidden,
              problem.vocab);
    pack_with(engine, context.get(), dgrad.data(), {weight.data(), problem.hidden, problem.dtype, 0}, problem.vocab,
              problem.hidden);
    args.packed_weight = forward.data();
    args.packed_weight_dgrad = dgrad.data();
  }
  EXPECT_EQ(head_loss_with(engine, context.get(), args), kOk);
  return out;
}

// The same in FP64.
struct Expected {
  double loss_sum = 0;
  int64_t loss_count = 0;
  std::vector<double> token_loss, d_x, d_weight;
  std::vector<double> d_x_magnitude, d_weight_magnitude;  // sums of absolute terms, for the tolerances
  std::vector<int32_t> top1;
};

Expected expect(const Problem& problem) {
  const Stored x = inputs_of(problem), weight = weight_of(problem);
  const std::vector<int32_t> targets = targets_of(problem);
  const int64_t count = problem.valid_vocab != 0 ? problem.valid_vocab : problem.vocab;
  Expected out;
  out.d_x.assign(x.size(), 0);
  out.d_x_magnitude.assign(x.size(), 0);
  out.d_weight.assign(weight.size(), problem.accumulate ? 0.5 : 0);
  out.d_weight_magnitude.assign(weight.size(), 1);
  for (int64_t t = 0; t < problem.tokens; ++t) {
    std::vector<double> logits(static_cast<size_t>(count)), slope(static_cast<size_t>(count), 1);
    for (int64_t v = 0; v < count; ++v) {
      double sum = 0;
      for (int64_t h = 0; h < problem.hidden; ++h) {
        sum +=
            x.at(static_cast<size_t>(t * problem.hidden + h)) * weight.at(static_cast<size_t>(v * problem.hidden + h));
      }
      if (problem.soft_cap > 0) {
        const double bent = std::tanh(sum / problem.soft_cap);
        slope[static_cast<size_t>(v)] = 1 - bent * bent;
        sum = problem.soft_cap * bent;
      }
      logits[static_cast<size_t>(v)] = sum;
    }
    const auto largest = std::max_element(logits.begin(), logits.end());
    out.top1.push_back(static_cast<int32_t>(largest - logits.begin()));
    const int32_t target = targets[static_cast<size_t>(t)];
    out.token_loss.push_back(0);
    if (target < 0) continue;
    double sum = 0;
    for (double logit : logits) sum += std::exp(logit - *largest);
    const double lse = *largest + std::log(sum);
    out.token_loss.back() = lse - logits[static_cast<size_t>(target)];
    out.loss_sum += out.token_loss.back();
    ++out.loss_count;
    for (int64_t v = 0; v < count; ++v) {
      const auto at = static_cast<size_t>(v);
      const double g = problem.grad_scale * slope[at] * (std::exp(logits[at] - lse) - (v == target ? 1 : 0));
      for (int64_t h = 0; h < problem.hidden; ++h) {
        const auto xi = static_cast<size_t>(t * problem.hidden + h), wi = static_cast<size_t>(v * problem.hidden + h);
        out.d_x[xi] += g * weight.at(wi);
        out.d_weight[wi] += g * x.at(xi);
        out.d_x_magnitude[xi] += std::fabs(g * weight.at(wi));
        out.d_weight_magnitude[wi] += std::fabs(g * x.at(xi));
      }
    }
  }
  return out;
}

void check(const Problem& problem, Level level) {
  SCOPED_TRACE(std::string(level_name(level)) + (problem.dtype == kF32 ? " f32 " : " bf16 ") +
               std::to_string(problem.tokens) + "x" + std::to_string(problem.hidden) + "x" +
               std::to_string(problem.vocab));
  const Output out = run(problem, level);
  const Expected expected = expect(problem);
  // A logit errs by its product's rounding: some hidden * 2^-24 * sum of magnitudes, here below 2e-6 of logit_size;
  // a gradient by that relative amount and, in BF16, by the rounding of the softmax and of what is stored.
  const double logit_error = 4e-6 * std::fmax(1, problem.logit_size);
  EXPECT_EQ(out.loss_count, expected.loss_count);
  EXPECT_NEAR(out.loss_sum, expected.loss_sum, logit_error * static_cast<double>(1 + expected.loss_count));
  for (size_t t = 0; t < expected.token_loss.size(); ++t) {
    ASSERT_NEAR(out.token_loss[t], expected.token_loss[t], logit_error + 1e-7 * expected.token_loss[t]);
    ASSERT_EQ(out.top1[t], expected.top1[t]) << t;
  }
  if (!problem.gradients) {
    EXPECT_EQ(out.d_x.at(0), 99);
    EXPECT_EQ(out.d_weight[0], 0.5f);
    return;
  }
  const double relative = 2 * logit_error + (problem.dtype == kBF16 ? 0x1p-8 : 0x1p-22);
  for (size_t i = 0; i < expected.d_x.size(); ++i) {
    const double stored = std::fabs(expected.d_x[i]) * rounding_unit(problem.dtype);
    ASSERT_NEAR(out.d_x.at(i), expected.d_x[i], relative * expected.d_x_magnitude[i] + stored + 1e-9) << "d_x " << i;
  }
  for (size_t i = 0; i < expected.d_weight.size(); ++i) {
    ASSERT_NEAR(out.d_weight[i], expected.d_weight[i], relative * expected.d_weight_magnitude[i]) << "d_weight " << i;
  }
}

TEST(HeadLoss, EqualsTheFormulaForEveryLengthOfEachDimension) {
  for (Level level : levels()) {
    for (int32_t dtype : {kF32, kBF16}) {
      for (int64_t length = 1; length <= 70; ++length) {
        for (int which = 0; which < 3; ++which) {
          Problem problem;
          problem.dtype = dtype;
          problem.packed = length % 2 == 0;
          problem.accumulate = length % 3 == 0;
          problem.grad_scale = 0.25f;
          (which == 0 ? problem.tokens : which == 1 ? problem.hidden : problem.vocab) = length;
          check(problem, level);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(HeadLoss, SoftCapValidVocabularyAndLargeLogits) {
  for (Level level : levels()) {
    for (int32_t dtype : {kF32, kBF16}) {
      Problem problem;
      problem.dtype = dtype;
      problem.tokens = 23;
      problem.vocab = 301;
      problem.valid_vocab = 290;
      check(problem, level);
      problem.soft_cap = 2;
      check(problem, level);
      problem.soft_cap = 0;
      problem.logit_size = 40;
      check(problem, level);
      problem.gradients = false;
      check(problem, level);
    }
  }
}

// Beyond the valid vocabulary d_weight is zero, and masked tokens have no gradient.
TEST(HeadLoss, NothingFlowsWhereNothingCounts) {
  Problem problem;
  problem.dtype = kBF16;
  problem.valid_vocab = 30;
  const Output out = run(problem, usable_level());
  for (int64_t v = 30; v < problem.vocab; ++v) {
    for (int64_t h = 0; h < problem.hidden; ++h)
      EXPECT_EQ(out.d_weight[static_cast<size_t>(v * problem.hidden + h)], 0);
  }
  for (int64_t h = 0; h < problem.hidden; ++h) EXPECT_EQ(out.d_x.at(static_cast<size_t>(2 * problem.hidden + h)), 0);
}

TEST(HeadLoss, SeveralChunksAndAnyNumberOfThreadsGiveTheSameBits) {
  for (Level level : levels()) {
    Problem problem;
    problem.dtype = kBF16;
    problem.hidden = 5;
    problem.vocab = 41;
    problem.tokens = 2100;
    ASSERT_LT(head_loss_chunk(problem.vocab), problem.tokens);
    if (level == usable_level()) check(problem, level);
    problem.threads = 1;
    const Output one = run(problem, level);
    for (int threads : {2, 3}) {
      problem.threads = threads;
      const Output many = run(problem, level);
      EXPECT_EQ(one.loss_sum, many.loss_sum);
      EXPECT_EQ(one.token_loss, many.token_loss);
      EXPECT_EQ(one.d_weight, many.d_weight);
      EXPECT_TRUE(one.d_x == many.d_x);
    }
  }
}

TEST(HeadLoss, NanLogitsMakeTheLossNan) {
  for (Level level : levels()) {
    TestContext context(1, level);
    std::vector<float> x(4, 1), weight(4 * 20, 1);
    weight[5] = NAN;
    const int32_t target = 3;
    double sum = 0;
    int64_t count = 0;
    invar_head_loss_args args{};
    args.struct_size = sizeof(args);
    args.dtype = kF32;
    args.tokens = 1;
    args.hidden = 4;
    args.vocab = 20;
    args.x = x.data();
    args.weight = weight.data();
    args.targets = &target;
    args.loss_sum = &sum;
    args.loss_count = &count;
    ASSERT_EQ(head_loss_with(engine_for(level, kF32), context.get(), args), kOk);
    EXPECT_TRUE(std::isnan(sum)) << level_name(level);
  }
}

TEST(HeadLoss, NoTokensWriteAZeroGradient) {
  Problem problem;
  problem.tokens = 0;
  const Output out = run(problem, usable_level());
  EXPECT_EQ(out.loss_sum, 0);
  EXPECT_EQ(out.loss_count, 0);
  EXPECT_EQ(out.d_weight[3], 0);
}

}  // namespace
}  // namespace invar::cpu
