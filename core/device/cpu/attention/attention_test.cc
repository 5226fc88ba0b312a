// Forward and backward on every level of this machine against the scalar reference: packed sequences, windows, caps,
// caches, head sizes with tails, strides; and the same bits with one and with three threads.
#include "core/device/cpu/attention/attention.h"

#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/testing/compare.h"

namespace invar::cpu {

// The AMX source on the software model of the tiles.
namespace amx_model_level {
int32_t attention(Context& context, const invar_attention_args& args);
int32_t attention_backward(Context& context, const invar_attention_backward_args& args);
}  // namespace amx_model_level

namespace {

struct Shape {
  int64_t heads, kv_heads, dim;
  std::vector<int32_t> q_offsets, k_offsets;
  float soft_cap = 0;
  int64_t window = 0;
};

class Attention : public testing::TestWithParam<Level> {
 protected:
  Attention() {
    if (GetParam() == Level::kAmx && cpu_level() < CpuLevel::kAmx) {
      kernels_.attention = amx_model_level::attention;
      kernels_.attention_backward = amx_model_level::attention_backward;
    } else {
      fill_attention(kernels_, GetParam());
    }
  }

  void check(const Shape& shape, int32_t dtype, bool with_backward);

  Kernels kernels_{};
  TestContext one_{1}, three_{3};
};

void Attention::check(const Shape& shape, int32_t dtype, bool with_backward) {
  const int64_t queries = shape.q_offsets.back(), keys = shape.k_offsets.back();
  const int64_t ldq = shape.heads * shape.dim + 3, ldo = shape.heads * shape.dim + 1;
  const int64_t ldk = shape.kv_heads * shape.dim + 5, ldv = shape.kv_heads * shape.dim;
  Stored q(dtype, random_floats(queries * ldq, 1)), k(dtype, random_floats(keys * ldk, 2));
  Stored v(dtype, random_floats(keys * ldv, 3)), d_out(dtype, random_floats(queries * ldo, 4));
  struct Results {
    Stored out, lse, d_q, d_k, d_v;
  };
  const Results blank{Stored(dtype, size_t(queries * ldo)), Stored(kF32, size_t(queries * shape.heads)),
                      Stored(dtype, size_t(queries * ldq)), Stored(dtype, size_t(keys * ldk)),
                      Stored(dtype, size_t(keys * ldv))};
  Results results[3] = {blank, blank, blank};
  for (int i = 0; i < 3; ++i) {
    Results& result = results[i];
    invar_attention_backward_args args{};
    invar_attention_args& forward = args.forward;
    forward.dtype = dtype, forward.sequences = static_cast<int64_t>(shape.q_offsets.size()) - 1;
    forward.heads = shape.heads, forward.kv_heads = shape.kv_heads, forward.head_dim = shape.dim;
    forward.q_offsets = shape.q_offsets.data(), forward.k_offsets = shape.k_offsets.data();
    forward.q = q.data(), forward.k = k.data(), forward.v = v.data(), forward.out = result.out.data();
    forward.ldq = ldq, forward.ldk = ldk, forward.ldv = ldv, forward.ldo = ldo;
    forward.lse = static_cast<float*>(result.lse.data());
    forward.scale = 1 / std::sqrt(static_cast<float>(shape.dim));
    forward.soft_cap = shape.soft_cap, forward.window = shape.window;
    Context& context = i == 2 ? three_.get() : one_.get();
    ASSERT_EQ(i == 0 ? reference::attention(context, forward) : kernels_.attention(context, forward), 0);
    if (!with_backward) continue;
    // All take the reference's results, so that only the backward pass is compared.
    forward.out = results[0].out.data(), forward.lse = static_cast<float*>(results[0].lse.data());
    args.d_out = d_out.data();
    args.d_q = result.d_q.data(), args.d_k = result.d_k.data(), args.d_v = result.d_v.data();
    ASSERT_EQ(i == 0 ? reference::attention_backward(context, args) : kernels_.attention_backward(context, args), 0);
  }
  EXPECT_EQ(results[1].out, results[2].out);
  EXPECT_EQ(results[1].lse, results[2].lse);
  EXPECT_EQ(results[1].d_q, results[2].d_q);
  EXPECT_EQ(results[1].d_k, results[2].d_k);
  EXPECT_EQ(results[1].d_v, results[2].d_v);
  // F32: a score of size 2 is a sum of `dim` products, so it carries about sqrt(dim) roundings of its size, and the
  // exponential and the weighted sum some more. BF16: weights carry 2^-18 from the short exponential (64 units of
  // FP32).
  double units = dtype == kF32 ? 24 + 2 * std::sqrt(static_cast<double>(shape.dim)) : 128;
  // AMX takes the weights and their gradients as BF16: 2^-9 each, in units of 2^-24, for two of them.
  if (GetParam() == Level::kAmx && dtype == kBF16) units = 0x1p16;
  const double many = std::sqrt(static_cast<double>(std::max<int64_t>(keys, 4)));
  expect_close(results[1].out, results[0].out, units, 1, "out");
  // The short exponential's 2^-18 in the sum.
  expect_close(results[1].lse, results[0].lse, dtype == kF32 ? 24 + 2 * std::sqrt(double(shape.dim)) : 128, 1, "lse");
  if (!with_backward) return;
  expect_close(results[1].d_q, results[0].d_q, units, 2, "d_q");
  expect_close(results[1].d_k, results[0].d_k, units, many, "d_k");
  expect_close(results[1].d_v, results[0].d_v, units, many, "d_v");
}

TEST_P(Attention, EveryLengthOfOneSequence) {
  for (int32_t dtype : {kF32, kBF16}) {
    for (int32_t n : {1, 5, 6, 7, 16, 17, 48, 49, 64, 65, 115}) {
      SCOPED_TRACE(testing::Message() << "dtype " << dtype << " tokens " << n);
      check({2, 1, 64, {0, n}, {0, n}}, dtype, true);
    }
  }
}

TEST_P(Attention, HeadSizesAndGroups) {
  for (int32_t dtype : {kF32, kBF16}) {
    for (int64_t dim : {1, 20, 64, 80, 128, 192}) {
      SCOPED_TRACE(testing::Message() << "dtype " << dtype << " dim " << dim);
      check({6, 2, dim, {0, 27}, {0, 27}}, dtype, true);
      check({1, 1, dim, {0, 67}, {0, 67}}, dtype, true);
    }
  }
}

TEST_P(Attention, PackedSequencesOfAnyLength) {
  for (int32_t dtype : {kF32, kBF16}) {
    check({4, 2, 24, {0, 1, 1, 50, 114, 115, 185}, {0, 1, 1, 50, 114, 115, 185}}, dtype, true);
    check({2, 2, 32, {3, 20, 100}, {7, 24, 104}}, dtype, true);
  }
}

TEST_P(Attention, CachesLongerThanTheQueries) {
  for (int32_t dtype : {kF32, kBF16}) {
    check({4, 2, 64, {0, 1, 4, 6}, {0, 700, 703, 1900}}, dtype, false);
    check({8, 1, 40, {0, 1}, {0, 1}}, dtype, false);
    check({4, 2, 32, {0, 9, 70}, {0, 200, 271}}, dtype, true);
    check({2, 2, 64, {0, 2}, {0, 900}, 0, 100}, dtype, false);
    check({2, 2, 64, {0, 2}, {0, 900}, 2.5f, 0}, dtype, false);
  }
}

TEST_P(Attention, WindowsAndCaps) {
  for (int32_t dtype : {kF32, kBF16}) {
    for (int64_t window : {1, 17, 64, 1000}) {
      SCOPED_TRACE(testing::Message() << "dtype " << dtype << " window " << window);
      check({2, 1, 16, {0, 170}, {0, 170}, 0, window}, dtype, true);
    }
    check({2, 1, 32, {0, 100}, {0, 100}, 1.5f, 0}, dtype, true);
    check({2, 1, 32, {0, 30, 150}, {0, 40, 200}, 3.f, 20}, dtype, true);
  }
}

TEST_P(Attention, SeveralChunksOfKeys) {
  check({2, 1, 4, {0, 1100}, {0, 1100}, 0, 150}, kBF16, true);
  check({1, 1, 4, {0, 600}, {0, 600}}, kF32, true);
  check({2, 1, 4, {0, 200}, {0, 1100}, 0, 600}, kF32, true);
}

std::vector<Level> attention_levels() {
  std::vector<Level> levels = usable_levels();
  // Above it products are FP32 until AMX: the processor's, or the model's.
  if (cpu_level() >= CpuLevel::kAvx512Bf16) levels.push_back(Level::kAmx);
  return levels;
}

INSTANTIATE_TEST_SUITE_P(Levels, Attention, testing::ValuesIn(attention_levels()), level_test_name);

}  // namespace
}  // namespace invar::cpu
