// Every operation of this family, on every level of this machine, against the scalar reference: all tails, strides
// and dtypes, and the same bits with one and with three threads.
#include "core/device/cpu/memory_bound/memory_bound.h"

#include <cfloat>
#include <limits>

#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/testing/compare.h"

namespace invar::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class MemoryBound : public testing::TestWithParam<Level> {
 protected:
  MemoryBound() { fill_memory_bound(kernels_, GetParam()); }

  Kernels kernels_{};
  TestContext one_{1}, three_{3};
};

const int32_t kActs[] = {kF32, kBF16};

TEST_P(MemoryBound, CastsLikeTheScalarCodecsForEveryLength) {
  constexpr int32_t kF16 = 2;
  auto values = random_floats(70, 1, 100);
  const float special[] = {0,           -0.f,    kInf,        -kInf,           kNan,      FLT_MIN,
                           FLT_MIN / 4, 1e-45f,  FLT_MAX,     1 + 0x1p-8f,     65520,     65519.9f,
                           0x1p-25,     6.0e-8f, 0x1.ffp-16f, 1 + 3 * 0x1p-8f, 0x1p-133f, 3.3961e38f};
  for (size_t i = 0; i < std::size(special); ++i) values[3 * i] = special[i];
  std::vector<uint16_t> patterns(70);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i * 947 + 31700);
  for (int64_t count = 0; count <= 70; ++count) {
    for (int32_t half : {kBF16, kF16}) {
      std::vector<uint16_t> narrow(71, 7), expected_narrow(71, 7);
      ASSERT_EQ(kernels_.cast(one_.get(), narrow.data(), half, values.data(), kF32, count), 0);
      reference::cast(one_.get(), expected_narrow.data(), half, values.data(), kF32, count);
      EXPECT_EQ(narrow, expected_narrow) << "dtype " << half << " count " << count;
      std::vector<float> wide(71, 7), expected_wide(71, 7);
      ASSERT_EQ(kernels_.cast(one_.get(), wide.data(), kF32, patterns.data(), half, count), 0);
      reference::cast(one_.get(), expected_wide.data(), kF32, patterns.data(), half, count);
      EXPECT_EQ(Stored(kF32, wide), Stored(kF32, expected_wide)) << "dtype " << half << " count " << count;
    }
  }
}

TEST_P(MemoryBound, CastsAndAddsLongArraysOnAnyNumberOfThreads) {
  const int64_t count = 100001;
  const auto a = random_floats(count, 1), b = random_floats(count, 2);
  for (int32_t dtype : kActs) {
    Stored left(dtype, a), right(dtype, b), sum(dtype, a), expected(dtype, size_t(count)), copy(dtype, size_t(count));
    kernels_.add(three_.get(), sum.data(), sum.data(), right.data(), dtype, count);
    reference::add(one_.get(), expected.data(), left.data(), right.data(), dtype, count);
    EXPECT_EQ(sum, expected);
    kernels_.cast(three_.get(), copy.data(), dtype, left.data(), dtype, count);
    EXPECT_EQ(copy, left);
    Stored narrow(kBF16, size_t(count)), narrow_expected(kBF16, a);
    kernels_.cast(three_.get(), narrow.data(), kBF16, left.data(), dtype, count);
    EXPECT_EQ(narrow, narrow_expected);
  }
}

TEST_P(MemoryBound, SumsSquaresInFp64) {
  for (int64_t count : {0, 1, 15, 33, 100, 32768, 32769, 300007}) {
    const auto x = random_floats(count, 3, 5);
    double sum = -1, again = -2, expected = -3;
    ASSERT_EQ(kernels_.sum_squares(one_.get(), x.data(), count, &sum), 0);
    ASSERT_EQ(kernels_.sum_squares(three_.get(), x.data(), count, &again), 0);
    reference::sum_squares(one_.get(), x.data(), count, &expected);
    EXPECT_EQ(sum, again);
    // At most 2048 additions in a row: 2048 * 2^-53.
    EXPECT_NEAR(sum, expected, expected * 2.3e-13) << count;
  }
}

TEST_P(MemoryBound, FindsTheOneNonFiniteValue) {
  for (int64_t count : {1, 16, 63, 70000}) {
    auto x = random_floats(count, 4, 1e30f);
    x[0] = FLT_MAX;
    int32_t finite = -1;
    ASSERT_EQ(kernels_.all_finite(three_.get(), x.data(), count, &finite), 0);
    EXPECT_EQ(finite, 1);
    for (int64_t at = 0; at < count; at += 1 + count / 77) {
      for (float bad : {kInf, -kInf, kNan, -kNan}) {
        const float kept = x[at];
        x[at] = bad;
        kernels_.all_finite(three_.get(), x.data(), count, &finite);
        EXPECT_EQ(finite, 0) << at;
        x[at] = kept;
      }
    }
  }
  int32_t finite = -1;
  kernels_.all_finite(one_.get(), nullptr, 0, &finite);
  EXPECT_EQ(finite, 1);
}

TEST_P(MemoryBound, CapsSoftly) {
  for (int64_t count : {1, 15, 64, 40001}) {
    std::vector<float> values = random_floats(count, 1, 40);
    Stored x[3] = {{kF32, values}, {kF32, values}, {kF32, values}};
    for (int i = 0; i < 3; ++i) {
      Context& context = i == 2 ? three_.get() : one_.get();
      float* data = static_cast<float*>(x[i].data());
      ASSERT_EQ(i == 0 ? reference::soft_cap(context, data, count, 30) : kernels_.soft_cap(context, data, count, 30),
                0);
    }
    EXPECT_EQ(x[1], x[2]);
    expect_close(x[1], x[0], 8, 0, "x");  // tanh within 4 ulp, the quotient and the product
  }
}

TEST_P(MemoryBound, NormalisesRowsWithAndWithoutResidual) {
  for (int64_t cols : {1, 7, 16, 64, 100, 576}) {
    for (int64_t rows : {1, 3, 70}) {
      for (int32_t x_dtype : kActs) {
        for (int32_t add_dtype : {0, kF32, kBF16}) {
          for (int32_t y_dtype : kActs) {
            const size_t count = static_cast<size_t>(rows * cols);
            Stored x(x_dtype, random_floats(count, 1)),
                added(add_dtype == 0 ? kF32 : add_dtype, random_floats(count, 2));
            const auto gain = random_floats(cols, 3, 0.2f);
            Stored y[3] = {{y_dtype, count}, {y_dtype, count}, {y_dtype, count}};
            Stored sum[3] = {x, x, x};  // in place
            std::vector<float> inv_rms[3];
            for (int i = 0; i < 3; ++i) {
              inv_rms[i].resize(rows);
              invar_rmsnorm_args args{};
              args.x_dtype = x_dtype, args.add_dtype = add_dtype, args.y_dtype = y_dtype;
              args.rows = rows, args.cols = cols;
              args.x = sum[i].data(), args.gain = gain.data(), args.gain_offset = 1, args.eps = 1e-5f;
              args.y = y[i].data(), args.inv_rms = inv_rms[i].data();
              if (add_dtype != 0) args.add = added.data(), args.sum_out = sum[i].data();
              Context& context = i == 2 ? three_.get() : one_.get();
              ASSERT_EQ(i == 0 ? reference::rmsnorm(one_.get(), args) : kernels_.rmsnorm(context, args), 0);
            }
            EXPECT_EQ(y[1], y[2]);
            EXPECT_EQ(sum[1], sum[2]);
            EXPECT_EQ(sum[1], sum[0]);
            EXPECT_EQ(inv_rms[1], inv_rms[2]);
            // F32 rows are summed in FP64 and inv_rms is rounded once; of BF16 rows up to 144 terms meet in an FP32
            // lane (576 columns, four lanes), about 12 roundings. y has three more.
            const double units = x_dtype == kF32 ? 2 : 14;
            expect_close(Stored(kF32, inv_rms[1]), Stored(kF32, inv_rms[0]), units, 0, "inv_rms");
            expect_close(y[1], y[0], units + 3, 0, "y");
          }
        }
      }
    }
  }
}

TEST_P(MemoryBound, RmsnormBackwardAddsAndCopies) {
  for (int64_t cols : {1, 9, 64, 576}) {
    for (int64_t rows : {1, 17, 70}) {
      for (int32_t dy_dtype : kActs) {
        for (int32_t x_dtype : kActs) {
          for (int accumulates : {0, 1}) {
            const size_t count = static_cast<size_t>(rows * cols);
            Stored x(x_dtype, random_floats(count, 1)), dy(dy_dtype, random_floats(count, 2));
            const auto gain = random_floats(cols, 3), start = random_floats(count, 4);
            std::vector<float> inv_rms = random_floats(rows, 5, 0.1f);
            for (float& value : inv_rms) value = std::fabs(value) + 0.5f;
            Stored dx[3] = {{kF32, start}, {kF32, start}, {kF32, start}};
            Stored copy[3] = {{kBF16, count}, {kBF16, count}, {kBF16, count}};
            Stored dgain[3] = {{kF32, gain}, {kF32, gain}, {kF32, gain}};
            for (int i = 0; i < 3; ++i) {
              invar_rmsnorm_backward_args args{};
              args.dy_dtype = dy_dtype, args.x_dtype = x_dtype, args.accumulate_dx = accumulates;
              args.rows = rows, args.cols = cols, args.dy = dy.data(), args.x = x.data(), args.gain = gain.data();
              args.inv_rms = inv_rms.data(), args.dx = static_cast<float*>(dx[i].data());
              args.dx_copy = copy[i].data(), args.dgain = static_cast<float*>(dgain[i].data());
              Context& context = i == 2 ? three_.get() : one_.get();
              ASSERT_EQ(
                  i == 0 ? reference::rmsnorm_backward(one_.get(), args) : kernels_.rmsnorm_backward(context, args), 0);
            }
            EXPECT_EQ(dx[1], dx[2]);
            EXPECT_EQ(copy[1], copy[2]);
            EXPECT_EQ(dgain[1], dgain[2]);
            // Terms below 10 in size, five roundings; dgain: up to 16 terms in a row and their size grows as a
            // random walk.
            expect_close(dx[1], dx[0], 5, 10, "dx");
            std::vector<float> rounded(count);
            for (size_t at = 0; at < count; ++at) rounded[at] = static_cast<float>(dx[1].at(at));
            EXPECT_EQ(copy[1], Stored(kBF16, rounded));
            expect_close(dgain[1], dgain[0], 20, 4 + std::sqrt(double(rows)), "dgain");
          }
        }
      }
    }
  }
}

TEST_P(MemoryBound, RotatesHeadsAtAStride) {
  for (int64_t dim : {2, 6, 32, 64, 96, 128}) {
    for (int32_t dtype : kActs) {
      for (int inverse : {0, 1}) {
        const int64_t tokens = 37, heads = 3, ld = heads * dim + 5, half = dim / 2;
        const auto start = random_floats(tokens * ld, 1);
        const auto cos = random_floats(50 * half, 2, 0.3f), sin = random_floats(50 * half, 3, 0.3f);
        std::vector<int32_t> positions(tokens);
        for (int64_t t = 0; t < tokens; ++t) positions[t] = static_cast<int32_t>(t * 7 % 50);
        Stored x[3] = {{dtype, start}, {dtype, start}, {dtype, start}};
        for (int i = 0; i < 3; ++i) {
          invar_rope_args args{sizeof args, dtype,       inverse,    tokens,     heads,           dim,
                               ld,          x[i].data(), cos.data(), sin.data(), positions.data()};
          Context& context = i == 2 ? three_.get() : one_.get();
          ASSERT_EQ(i == 0 ? reference::rope(one_.get(), args) : kernels_.rope(context, args), 0);
        }
        EXPECT_EQ(x[1], x[2]);
        expect_close(x[1], x[0], 3, 2, "x");  // two products below 2
      }
    }
  }
}

// The rows of a token's heads lie inside wider rows; everything around them stays.
TEST_P(MemoryBound, NormalisesGroupsInsideWiderRows) {
  const int64_t tokens = 21, groups = 3, rows = tokens * groups;
  for (int64_t cols : {6, 16, 64}) {
    for (int32_t dtype : kActs) {
      const int64_t ldx = groups * cols + 5, ldy = groups * cols + 2, lddx = groups * cols + 9;
      const auto gain = random_floats(cols, 3);
      Stored x(dtype, random_floats(tokens * ldx, 1)), dy(dtype, random_floats(tokens * ldy, 2));
      const Stored y_blank(dtype, random_floats(tokens * ldy, 4)), dx_blank(dtype, random_floats(tokens * lddx, 5));
      Stored y[3] = {y_blank, y_blank, y_blank}, dx[3] = {dx_blank, dx_blank, dx_blank};
      std::vector<float> inv_rms[3];
      Stored dgain[3] = {{kF32, gain}, {kF32, gain}, {kF32, gain}};
      for (int i = 0; i < 3; ++i) {
        inv_rms[i].resize(rows);
        Context& context = i == 2 ? three_.get() : one_.get();
        invar_rmsnorm_args args{};
        args.struct_size = sizeof args, args.x_dtype = args.y_dtype = dtype, args.rows = rows, args.cols = cols;
        args.x = x.data(), args.y = y[i].data(), args.gain = gain.data(), args.eps = 1e-6f;
        args.inv_rms = inv_rms[i].data(), args.groups = groups, args.ldx = ldx, args.ldy = ldy;
        ASSERT_EQ(i == 0 ? reference::rmsnorm(context, args) : kernels_.rmsnorm(context, args), 0);
        invar_rmsnorm_backward_args back{};
        back.struct_size = sizeof back, back.dy_dtype = back.x_dtype = dtype, back.rows = rows, back.cols = cols;
        back.dy = dy.data(), back.x = x.data(), back.gain = gain.data(), back.inv_rms = inv_rms[0].data();
        back.groups = groups, back.ldx = ldx, back.lddy = ldy, back.lddx = lddx;
        (dtype == kF32 ? reinterpret_cast<void*&>(back.dx) : back.dx_copy) = dx[i].data();
        back.dgain = static_cast<float*>(dgain[i].data());
        ASSERT_EQ(i == 0 ? reference::rmsnorm_backward(context, back) : kernels_.rmsnorm_backward(context, back), 0);
      }
      EXPECT_EQ(y[1], y[2]);
      EXPECT_EQ(dx[1], dx[2]);
      EXPECT_EQ(dgain[1], dgain[2]);
      const double units = dtype == kF32 ? 5 : 17;
      expect_close(y[1], y[0], units, 0, "y");
      expect_close(dx[1], dx[0], units, 10, "dx");
      expect_close(dgain[1], dgain[0], 20, 4 + std::sqrt(double(rows)), "dgain");
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t c = groups * cols; c < ldy; ++c) EXPECT_EQ(y[1].at(t * ldy + c), y_blank.at(t * ldy + c));
        for (int64_t c = groups * cols; c < lddx; ++c) EXPECT_EQ(dx[1].at(t * lddx + c), dx_blank.at(t * lddx + c));
      }
    }
  }
}

TEST_P(MemoryBound, GatesForwardAndBackwardAtStrides) {
  for (const auto& [cols, function] : {std::pair{1, INVAR_GATE_SILU},
                                       {15, INVAR_GATE_SILU},
                                       {48, INVAR_GATE_GELU_TANH},
                                       {200, INVAR_GATE_SILU},
                                       {201, INVAR_GATE_GELU_TANH}}) {
    for (int32_t dtype : kActs) {
      const int64_t rows = 301, ld_in = 2 * cols + 3, ld_out = cols + 1;
      auto gates = random_floats(rows * ld_in, 1, 4);
      gates[0] = 1000, gates[ld_in] = -1000, gates[2 * ld_in] = -90, gates[3 * ld_in] = 0;
      const auto d_outs = random_floats(rows * ld_out, 2);
      const size_t size = static_cast<size_t>(rows * ld_out);
      Stored in[3] = {{dtype, gates}, {dtype, gates}, {dtype, gates}};
      Stored out[3] = {{dtype, size}, {dtype, size}, {dtype, size}}, again[3] = {out[0], out[0], out[0]};
      Stored d_out(dtype, d_outs);
      for (int i = 0; i < 3; ++i) {
        const int64_t bytes = dtype == kF32 ? 4 : 2;
        char* gate = static_cast<char*>(in[i].data());
        invar_swiglu_backward_args args{};
        args.forward = {sizeof args,         dtype,         rows,    cols, ld_in, ld_out, gate,
                        gate + cols * bytes, out[i].data(), function};
        args.d_out = d_out.data(), args.d_gate = gate, args.d_up = gate + cols * bytes;  // in place
        args.act_out = again[i].data();
        Context& context = i == 1 ? one_.get() : three_.get();
        ASSERT_EQ(i == 0 ? reference::swiglu(context, args.forward) : kernels_.swiglu(context, args.forward), 0);
        ASSERT_EQ(i == 0 ? reference::swiglu_backward(context, args) : kernels_.swiglu_backward(context, args), 0);
      }
      EXPECT_EQ(out[1], out[2]);
      EXPECT_EQ(in[1], in[2]);
      EXPECT_EQ(again[1], out[1]);
      // exp 1 ulp, reciprocal 1, three products; gates below -87 give about 1e-35 instead of less.
      // GELU's argument, up to 30 where the result is above 1e-12, is rounded four times before exp.
      const bool is_silu = function == INVAR_GATE_SILU;
      expect_close(out[1], out[0], is_silu ? 8 : 128, is_silu ? 1e-25 : 1e-12, "out");
      // GELU: the sigmoid's argument, up to 10 where its slope counts, is rounded twice and its effect multiplied by
      // g (1.6 + 0.2 g^2).
      expect_close(in[1], in[0], is_silu ? 12 : 30, 4, "d_gate and d_up");
    }
  }
}

TEST_P(MemoryBound, EmbeddingLooksUpAndAddsInTokenOrder) {
  for (int64_t cols : {1, 33, 530}) {
    for (int32_t table_dtype : kActs) {
      for (int32_t out_dtype : kActs) {
        const int64_t tokens = 203, vocab = 40;
        Stored table(table_dtype, random_floats(vocab * cols, 1));
        const auto start = random_floats(vocab * cols, 2), d_outs = random_floats(tokens * cols, 3);
        std::vector<int32_t> ids(tokens);
        for (int64_t t = 0; t < tokens; ++t) ids[t] = static_cast<int32_t>(t * t % vocab);
        const size_t size = static_cast<size_t>(tokens * cols);
        Stored out[3] = {{out_dtype, size}, {out_dtype, size}, {out_dtype, size}}, d_out(out_dtype, d_outs);
        Stored d_table[3] = {{kF32, start}, {kF32, start}, {kF32, start}};
        for (int i = 0; i < 3; ++i) {
          invar_embedding_args args{};
          args.table_dtype = table_dtype, args.out_dtype = out_dtype;
          args.tokens = tokens, args.vocab = vocab, args.cols = cols, args.scale = 1.5f;
          args.ids = ids.data(), args.table = table.data(), args.out = out[i].data();
          Context& context = i == 1 ? one_.get() : three_.get();
          ASSERT_EQ(i == 0 ? reference::embedding(context, args) : kernels_.embedding(context, args), 0);
          args.out = d_out.data(), args.d_table = static_cast<float*>(d_table[i].data());
          ASSERT_EQ(i == 0 ? reference::embedding_backward(context, args) : kernels_.embedding_backward(context, args),
                    0);
        }
        EXPECT_EQ(out[1], out[0]);
        EXPECT_EQ(d_table[1], d_table[2]);
        // An id occurs at most 203 times here, in most cases below 20: one rounding each of sums below 100.
        expect_close(d_table[1], d_table[0], 20, 30, "d_table");
      }
    }
  }
}

TEST_P(MemoryBound, AdamwStepsAListOfTensors) {
  const int64_t counts[] = {0, 1, 17, 32768, 40001, 5};
  std::vector<std::vector<float>> start[4];
  struct Run {
    std::vector<Stored> master, m, v, working;
    std::vector<invar_adamw_tensor> tensors;
  } runs[3];
  std::vector<std::vector<float>> gradients;
  for (size_t t = 0; t < std::size(counts); ++t) {
    const uint32_t seed = 10 * static_cast<uint32_t>(t);
    gradients.push_back(random_floats(counts[t], seed, 100));
    auto v = random_floats(counts[t], seed + 2, 0.01f);
    for (float& value : v) value *= value;
    if (counts[t] > 3) gradients[t][0] = v[0] = 0, gradients[t][1] = 1e-30f;
    for (Run& run : runs) {
      run.master.emplace_back(kF32, random_floats(counts[t], seed + 1));
      run.m.emplace_back(kF32, random_floats(counts[t], seed + 3, 0.01f));
      run.v.emplace_back(kF32, v);
      run.working.emplace_back(kBF16, static_cast<size_t>(counts[t]));
    }
  }
  for (int i = 0; i < 3; ++i) {
    for (size_t t = 0; t < std::size(counts); ++t) {
      Run& run = runs[i];
      run.tensors.push_back({static_cast<float*>(run.master[t].data()), gradients[t].data(),
                             static_cast<float*>(run.m[t].data()), static_cast<float*>(run.v[t].data()),
                             t == 2 ? nullptr : run.working[t].data(), counts[t], t % 2 == 0 ? 0.1f : 0.0f});
    }
    invar_adamw_args args{sizeof args,
                          runs[i].tensors.data(),
                          static_cast<int64_t>(runs[i].tensors.size()),
                          1e-2f,
                          0.9f,
                          0.95f,
                          1e-8f,
                          1 - 0.9 * 0.9,
                          1 - 0.95 * 0.95,
                          1e-3f};
    Context& context = i == 2 ? three_.get() : one_.get();
    ASSERT_EQ(i == 0 ? reference::adamw(one_.get(), args) : kernels_.adamw(context, args), 0);
  }
  for (size_t t = 0; t < std::size(counts); ++t) {
    EXPECT_EQ(runs[1].master[t], runs[2].master[t]);
    EXPECT_EQ(runs[1].m[t], runs[2].m[t]);
    EXPECT_EQ(runs[1].v[t], runs[2].v[t]);
    EXPECT_EQ(runs[1].working[t], runs[2].working[t]);
    // Three roundings of terms as large as the result; m cancels at the size of its terms.
    expect_close(runs[1].m[t], runs[0].m[t], 4, 0.1, "m");
    expect_close(runs[1].v[t], runs[0].v[t], 5, 0, "v");
    // Where both v and g happen to be small, the update is larger than the weight.
    expect_close(runs[1].master[t], runs[0].master[t], 4, 4, "master");
    if (t == 2) continue;
    std::vector<float> masters(static_cast<size_t>(counts[t]));
    for (size_t at = 0; at < masters.size(); ++at) masters[at] = static_cast<float>(runs[1].master[t].at(at));
    EXPECT_EQ(runs[1].working[t], Stored(kBF16, masters));
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, MemoryBound, testing::ValuesIn(usable_levels(Level::kAvx512Bf16)), level_test_name);

}  // namespace
}  // namespace invar::cpu
