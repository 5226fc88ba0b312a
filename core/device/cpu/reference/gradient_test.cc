// Each backward operation against central differences of the forward formula written again in FP64.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/testing/test_context.h"

namespace invar::cpu {
namespace {

using Values = std::vector<double>;

Values doubles(const std::vector<float>& values) { return Values(values.begin(), values.end()); }

// d loss / d point by central differences: the error is h^2 f'''/6 plus 2^-53 |f| / h, about 1e-9 here.
Values differences(const std::function<double(const Values&)>& loss, Values point) {
  constexpr double kStep = 1e-4;
  Values gradient(point.size());
  for (size_t i = 0; i < point.size(); ++i) {
    const double middle = point[i];
    point[i] = middle + kStep;
    const double above = loss(point);
    point[i] = middle - kStep;
    gradient[i] = (above - loss(point)) / (2 * kStep);
    point[i] = middle;
  }
  return gradient;
}

// FP32 inputs such as lse or inv_rms carry 2^-24 relative, a few of them in a sum: 1e-5 covers both errors.
void expect_near(const std::vector<float>& actual, const Values& expected, const char* name) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-5 * (1 + std::fabs(expected[i]))) << name << " at " << i;
  }
}

double weighted(const Values& values, const std::vector<float>& weights) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += values[i] * weights[i];
  return sum;
}

TEST(RmsnormGradient, EqualsCentralDifferences) {
  constexpr int64_t rows = 3, cols = 7;
  const float eps = 1e-3f, offset = 1;
  auto x = random_floats(rows * cols, 1), gain = random_floats(cols, 2, 0.3f), dy = random_floats(rows * cols, 3);
  const auto forward = [&](const Values& at_x, const Values& at_gain) {
    Values y(rows * cols);
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t c = 0; c < cols; ++c) squares += at_x[r * cols + c] * at_x[r * cols + c];
      const double inv_rms = 1 / std::sqrt(squares / cols + eps);
      for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = at_x[r * cols + c] * inv_rms * (at_gain[c] + offset);
    }
    return y;
  };
  TestContext context(1);
  std::vector<float> y(rows * cols), inv_rms(rows);
  invar_rmsnorm_args args{};
  args.x_dtype = args.y_dtype = kF32;
  args.rows = rows, args.cols = cols;
  args.x = x.data(), args.gain = gain.data(), args.gain_offset = offset, args.eps = eps;
  args.y = y.data(), args.inv_rms = inv_rms.data();
  ASSERT_EQ(reference::rmsnorm(context.get(), args), 0);
  expect_near(y, forward(doubles(x), doubles(gain)), "y");

  std::vector<float> dx(rows * cols, 0.5f), dgain(cols, 0.25f);
  invar_rmsnorm_backward_args back{};
  back.dy_dtype = back.x_dtype = kF32;
  back.rows = rows, back.cols = cols, back.accumulate_dx = 1;
  back.dy = dy.data(), back.x = x.data(), back.gain = gain.data(), back.gain_offset = offset;
  back.inv_rms = inv_rms.data(), back.dx = dx.data(), back.dgain = dgain.data();
  ASSERT_EQ(reference::rmsnorm_backward(context.get(), back), 0);
  auto expected_dx = differences([&](const Values& v) { return weighted(forward(v, doubles(gain)), dy); }, doubles(x));
  auto expected_dgain =
      differences([&](const Values& v) { return weighted(forward(doubles(x), v), dy); }, doubles(gain));
  for (double& value : expected_dx) value += 0.5;
  for (double& value : expected_dgain) value += 0.25;
  expect_near(dx, expected_dx, "dx");
  expect_near(dgain, expected_dgain, "dgain");
}

TEST(RopeGradient, IsTheInverseRotation) {
  constexpr int64_t tokens = 3, heads = 2, dim = 6, half = dim / 2;
  auto x = random_floats(tokens * heads * dim, 1), dy = random_floats(tokens * heads * dim, 2);
  std::vector<int32_t> positions{4, 0, 2};
  std::vector<float> cos, sin;
  for (int p = 0; p < 5; ++p) {
    for (int i = 0; i < half; ++i) {
      cos.push_back(static_cast<float>(std::cos(p * std::pow(0.1, i))));
      sin.push_back(static_cast<float>(std::sin(p * std::pow(0.1, i))));
    }
  }
  const auto forward = [&](const Values& at) {
    Values y(at.size());
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < half; ++i) {
          const int64_t low = (t * heads + h) * dim + i, high = low + half;
          const double c = cos[positions[t] * half + i], s = sin[positions[t] * half + i];
          y[low] = at[low] * c - at[high] * s;
          y[high] = at[high] * c + at[low] * s;
        }
      }
    }
    return y;
  };
  TestContext context(1);
  invar_rope_args args{};
  args.dtype = kF32, args.tokens = tokens, args.heads = heads, args.head_dim = dim, args.ld = heads * dim;
  args.cos = cos.data(), args.sin = sin.data(), args.positions = positions.data();
  auto y = x, dx = dy;
  args.x = y.data();
  ASSERT_EQ(reference::rope(context.get(), args), 0);
  expect_near(y, forward(doubles(x)), "y");
  args.x = dx.data(), args.inverse = 1;
  ASSERT_EQ(reference::rope(context.get(), args), 0);
  expect_near(dx, differences([&](const Values& v) { return weighted(forward(v), dy); }, doubles(x)), "dx");
}

class GateGradient : public testing::TestWithParam<int32_t> {};

TEST_P(GateGradient, EqualsCentralDifferences) {
  constexpr int64_t rows = 3, cols = 5;
  auto gate = random_floats(rows * cols, 1, 2), up = random_floats(rows * cols, 2);
  auto d_out = random_floats(rows * cols, 3);
  const auto forward = [&](const Values& g, const Values& u) {
    Values out(g.size());
    for (size_t i = 0; i < g.size(); ++i) {
      const double cubic = std::sqrt(2 / M_PI) * (g[i] + 0.044715 * g[i] * g[i] * g[i]);
      out[i] =
          (GetParam() == INVAR_GATE_SILU ? g[i] / (1 + std::exp(-g[i])) : g[i] * (1 + std::tanh(cubic)) / 2) * u[i];
    }
    return out;
  };
  TestContext context(1);
  std::vector<float> out(rows * cols), again(rows * cols), d_gate(rows * cols), d_up(rows * cols);
  invar_swiglu_backward_args args{};
  args.forward = {sizeof args, kF32, rows, cols, cols, cols, gate.data(), up.data(), out.data(), GetParam()};
  args.d_out = d_out.data(), args.d_gate = d_gate.data(), args.d_up = d_up.data(), args.act_out = again.data();
  ASSERT_EQ(reference::swiglu(context.get(), args.forward), 0);
  ASSERT_EQ(reference::swiglu_backward(context.get(), args), 0);
  expect_near(out, forward(doubles(gate), doubles(up)), "out");
  EXPECT_EQ(out, again);
  expect_near(d_gate,
              differences([&](const Values& v) { return weighted(forward(v, doubles(up)), d_out); }, doubles(gate)),
              "d_gate");
  expect_near(d_up,
              differences([&](const Values& v) { return weighted(forward(doubles(gate), v), d_out); }, doubles(up)),
              "d_up");
}

INSTANTIATE_TEST_SUITE_P(Functions, GateGradient, testing::Values(INVAR_GATE_SILU, INVAR_GATE_GELU_TANH));

TEST(EmbeddingGradient, AddsRowsOfRepeatedIds) {
  std::vector<float> table = random_floats(4 * 3, 1), d_table(4 * 3, 1.f), out(5 * 3);
  std::vector<int32_t> ids{2, 0, 2, 3, 2};
  invar_embedding_args args{};
  args.table_dtype = args.out_dtype = kF32;
  args.tokens = 5, args.vocab = 4, args.cols = 3, args.scale = 0.5f;
  args.ids = ids.data(), args.table = table.data(), args.out = out.data(), args.d_table = d_table.data();
  TestContext context(1);
  ASSERT_EQ(reference::embedding(context.get(), args), 0);
  for (int t = 0; t < 5; ++t) {
    for (int c = 0; c < 3; ++c) EXPECT_EQ(out[t * 3 + c], 0.5f * table[ids[t] * 3 + c]);
  }
  auto d_out = random_floats(5 * 3, 2);
  args.out = d_out.data();
  ASSERT_EQ(reference::embedding_backward(context.get(), args), 0);
  Values expected(4 * 3, 1.0);
  for (int t = 0; t < 5; ++t) {
    for (int c = 0; c < 3; ++c) expected[ids[t] * 3 + c] += 0.5 * d_out[t * 3 + c];
  }
  expect_near(d_table, expected, "d_table");
}

struct AttentionCase {
  const char* name;
  float soft_cap;
  int64_t window;
  std::vector<int32_t> q_offsets, k_offsets;
};

class AttentionGradient : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionGradient, EqualsCentralDifferences) {
  const AttentionCase& at = GetParam();
  constexpr int64_t heads = 4, kv_heads = 2, dim = 3;
  const int64_t sequences = static_cast<int64_t>(at.q_offsets.size()) - 1;
  const int64_t queries = at.q_offsets.back(), keys = at.k_offsets.back();
  const double scale = 0.7;
  auto q = random_floats(queries * heads * dim, 1), k = random_floats(keys * kv_heads * dim, 2);
  auto v = random_floats(keys * kv_heads * dim, 3), d_out = random_floats(queries * heads * dim, 4);
  const auto forward = [&](const Values& fq, const Values& fk, const Values& fv) {
    Values out(queries * heads * dim, 0.0);
    for (int64_t s = 0; s < sequences; ++s) {
      const int64_t nq = at.q_offsets[s + 1] - at.q_offsets[s], nk = at.k_offsets[s + 1] - at.k_offsets[s];
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < nq; ++i) {
          const int64_t qi = ((at.q_offsets[s] + i) * heads + h) * dim;
          Values weights(nk, 0.0);
          double sum = 0;
          for (int64_t j = 0; j < nk; ++j) {
            if (j > nk - nq + i || (at.window > 0 && j <= nk - nq + i - at.window)) continue;
            const int64_t kj = ((at.k_offsets[s] + j) * kv_heads + h / 2) * dim;
            double score = 0;
            for (int64_t c = 0; c < dim; ++c) score += scale * fq[qi + c] * fk[kj + c];
            if (at.soft_cap > 0) score = at.soft_cap * std::tanh(score / at.soft_cap);
            sum += weights[j] = std::exp(score);
          }
          for (int64_t j = 0; j < nk; ++j) {
            const int64_t vj = ((at.k_offsets[s] + j) * kv_heads + h / 2) * dim;
            for (int64_t c = 0; c < dim; ++c) out[qi + c] += weights[j] / sum * fv[vj + c];
          }
        }
      }
    }
    return out;
  };
  std::vector<float> out(q.size()), lse(heads * queries), d_q(q.size()), d_k(k.size(), 9), d_v(v.size(), 9);
  invar_attention_backward_args args{};
  args.forward.dtype = kF32;
  args.forward.sequences = sequences;
  args.forward.heads = heads, args.forward.kv_heads = kv_heads, args.forward.head_dim = dim;
  args.forward.q_offsets = at.q_offsets.data(), args.forward.k_offsets = at.k_offsets.data();
  args.forward.q = q.data(), args.forward.k = k.data(), args.forward.v = v.data(), args.forward.out = out.data();
  args.forward.ldq = args.forward.ldo = heads * dim, args.forward.ldk = args.forward.ldv = kv_heads * dim;
  args.forward.lse = lse.data(), args.forward.scale = static_cast<float>(scale);
  args.forward.soft_cap = at.soft_cap, args.forward.window = at.window;
  args.d_out = d_out.data(), args.d_q = d_q.data(), args.d_k = d_k.data(), args.d_v = d_v.data();
  TestContext context(2);
  ASSERT_EQ(reference::attention(context.get(), args.forward), 0);
  ASSERT_EQ(reference::attention_backward(context.get(), args), 0);
  const Values xq = doubles(q), xk = doubles(k), xv = doubles(v);
  expect_near(out, forward(xq, xk, xv), "out");
  expect_near(d_q, differences([&](const Values& p) { return weighted(forward(p, xk, xv), d_out); }, xq), "d_q");
  expect_near(d_k, differences([&](const Values& p) { return weighted(forward(xq, p, xv), d_out); }, xk), "d_k");
  expect_near(d_v, differences([&](const Values& p) { return weighted(forward(xq, xk, p), d_out); }, xv), "d_v");
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionGradient,
                         testing::Values(AttentionCase{"Plain", 0, 0, {0, 6}, {0, 6}},
                                         AttentionCase{"Packed", 0, 0, {0, 4, 4, 5, 8}, {0, 4, 4, 5, 8}},
                                         AttentionCase{"Cache", 0, 0, {0, 1, 4}, {0, 5, 11}},
                                         AttentionCase{"Window", 0, 3, {0, 7}, {0, 7}},
                                         AttentionCase{"SoftCap", 1.5f, 0, {0, 5}, {0, 5}},
                                         AttentionCase{"All", 2.f, 2, {0, 2, 6}, {0, 5, 9}}),
                         [](const auto& info) { return info.param.name; });

class HeadLossGradient : public testing::TestWithParam<float> {};

TEST_P(HeadLossGradient, EqualsCentralDifferences) {
  constexpr int64_t tokens = 4, hidden = 3, vocab = 6, valid = 5;
  const float soft_cap = GetParam(), grad_scale = 0.25f;
  auto x = random_floats(tokens * hidden, 1), w = random_floats(vocab * hidden, 2);
  std::vector<int32_t> targets{1, -1, 4, 1};
  const auto loss = [&](const Values& fx, const Values& fw) {
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      if (targets[t] < 0) continue;
      Values logits(valid, 0.0);
      double total = 0;
      for (int64_t v = 0; v < valid; ++v) {
        for (int64_t h = 0; h < hidden; ++h) logits[v] += fx[t * hidden + h] * fw[v * hidden + h];
        if (soft_cap > 0) logits[v] = soft_cap * std::tanh(logits[v] / soft_cap);
        total += std::exp(logits[v]);
      }
      sum += std::log(total) - logits[targets[t]];
    }
    return sum;
  };
  double loss_sum = 0;
  int64_t loss_count = 0;
  std::vector<float> d_x(x.size()), d_w(w.size(), 2.f), token_loss(tokens);
  std::vector<int32_t> top1(tokens);
  invar_head_loss_args args{};
  args.dtype = kF32, args.tokens = tokens, args.hidden = hidden, args.vocab = vocab, args.valid_vocab = valid;
  args.x = x.data(), args.weight = w.data(), args.targets = targets.data();
  args.soft_cap = soft_cap, args.grad_scale = grad_scale, args.accumulate_d_weight = 1;
  args.loss_sum = &loss_sum, args.loss_count = &loss_count, args.token_loss = token_loss.data();
  args.top1 = top1.data(), args.d_x = d_x.data(), args.d_weight = d_w.data();
  TestContext context(2);
  ASSERT_EQ(reference::head_loss(context.get(), args), 0);
  EXPECT_EQ(loss_count, 3);
  EXPECT_NEAR(loss_sum, loss(doubles(x), doubles(w)), 1e-12);
  EXPECT_EQ(token_loss[1], 0);
  EXPECT_NEAR(token_loss[0] + token_loss[2] + token_loss[3], loss_sum, 1e-6);
  auto expected_d_x = differences([&](const Values& p) { return grad_scale * loss(p, doubles(w)); }, doubles(x));
  auto expected_d_w = differences([&](const Values& p) { return grad_scale * loss(doubles(x), p); }, doubles(w));
  for (double& value : expected_d_w) value += 2;
  expect_near(d_x, expected_d_x, "d_x");
  expect_near(d_w, expected_d_w, "d_weight");
}

INSTANTIATE_TEST_SUITE_P(Caps, HeadLossGradient, testing::Values(0.f, 1.5f));

}  // namespace
}  // namespace invar::cpu
