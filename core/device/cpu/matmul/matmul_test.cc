// Products against FP64 loops, on every engine this machine can run.
#include "core/device/cpu/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/device/cpu/level.h"
#include "core/device/cpu/matmul/amx_model.h"
#include "core/device/cpu/matmul/amx_tiles.h"
#include "core/device/cpu/testing/test_context.h"

namespace invar::cpu {

extern const MatmulEngine kAmxModelEngine;

namespace {

struct EngineCase {
  const MatmulEngine* engine;
  Level level;
  bool takes_f32;
};

std::vector<EngineCase> engines() {
  const EngineCase all[] = {
      {&portable::kWideEngine, Level::kPortable, true}, {&avx2::kWideEngine, Level::kAvx2, true},
      {&avx512::kWideEngine, Level::kAvx512, true},     {&kAmxModelEngine, Level::kAvx512, false},
      {&kDotEngine, Level::kAvx512Bf16, false},         {&kAmxEngine, Level::kAmx, false},
  };
  std::vector<EngineCase> usable;
  for (const EngineCase& item : all) {
    if (item.level <= usable_level()) usable.push_back(item);
  }
  return usable;
}

struct Shape {
  int64_t rows, cols, inner;
};

struct Variant {
  int32_t dtype = kF32, c_dtype = kF32, add_dtype = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false, packed = false, squares = false;
  bool one_row_added = false;  // a bias: ld_add 0
  float alpha = 1;
  int64_t extra_ld = 0;
};

// One product and its FP64 twin.
class Check {
 public:
  Check(const MatmulEngine& engine, Context& context, Shape shape, const Variant& variant, uint32_t seed = 1)
      : shape_(shape), variant_(variant) {
    const auto [rows, cols, inner] = shape;
    lda_ = (variant.transpose_a ? rows : inner) + variant.extra_ld;
    ldb_ = (variant.transpose_b ? inner : cols) + variant.extra_ld;
    ldc_ = cols + variant.extra_ld;
    Stored a(variant.dtype, random_floats(static_cast<size_t>(lda_ * (variant.transpose_a ? inner : rows)), seed));
    Stored b(variant.dtype, random_floats(static_cast<size_t>(ldb_ * (variant.transpose_b ? cols : inner)), seed + 1));
    c_ = Stored(variant.c_dtype, random_floats(static_cast<size_t>(ldc_ * rows), seed + 2));
    const int32_t add_dtype = variant.add_dtype == 0 ? kF32 : variant.add_dtype;
    Stored add(add_dtype, random_floats(static_cast<size_t>(ldc_ * rows), seed + 3));
    const std::vector<double> before = c_.values();

    invar_matmul_args args{};
    args.struct_size = sizeof(args);
    args.a_dtype = args.b_dtype = variant.dtype;
    args.c_dtype = variant.c_dtype;
    args.transpose_a = variant.transpose_a;
    args.transpose_b = variant.transpose_b;
    args.accumulate = variant.accumulate;
    args.rows = rows;
    args.cols = cols;
    args.inner = inner;
    args.a = a.data();
    args.b = b.data();
    args.c = c_.data();
    args.lda = lda_;
    args.ldb = ldb_;
    args.ldc = ldc_;
    args.alpha = variant.alpha;
    if (variant.add_dtype != 0) {
      args.add = add.data();
      args.add_dtype = variant.add_dtype;
      args.ld_add = variant.one_row_added ? 0 : ldc_;
    }
    if (variant.squares) args.sum_squares = &squares_;
    std::vector<char> packed;
    if (variant.packed) {
      packed.resize(packed_bytes(engine, variant.dtype, inner, cols));
      EXPECT_EQ(
          pack_with(engine, context, packed.data(), {b.data(), ldb_, variant.dtype, variant.transpose_b}, inner, cols),
          kOk);
      args.packed_b = packed.data();
      args.b = nullptr;
    }
    EXPECT_EQ(matmul_with(engine, context, args), kOk);
    compare(a, b, add, before);
  }

  const Stored& result() const { return c_; }
  double squares() const { return squares_; }

 private:
  // FP32 sums of `inner` products in some order err by at most about inner * 2^-24 of the sum of magnitudes, a
  // little less than half of it in practice; storing rounds once more.
  void compare(const Stored& a, const Stored& b, const Stored& add, const std::vector<double>& before) {
    const std::vector<double> a64 = a.values(), b64 = b.values();
    double squares = 0;
    for (int64_t r = 0; r < shape_.rows; ++r) {
      for (int64_t c = 0; c < ldc_; ++c) {
        const auto at = static_cast<size_t>(r * ldc_ + c);
        if (c >= shape_.cols) {
          ASSERT_EQ(c_.at(at), before[at]) << "written beyond the row";
          continue;
        }
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < shape_.inner; ++k) {
          const double product = a64[static_cast<size_t>(variant_.transpose_a ? k * lda_ + r : r * lda_ + k)] *
                                 b64[static_cast<size_t>(variant_.transpose_b ? c * ldb_ + k : k * ldb_ + c)];
          sum += product;
          magnitude += std::fabs(product);
        }
        double expected = variant_.alpha * sum;
        magnitude *= std::fabs(variant_.alpha);
        if (variant_.accumulate) expected += before[at];
        if (variant_.add_dtype != 0) expected += add.at(variant_.one_row_added ? static_cast<size_t>(c) : at);
        const double tolerance = (static_cast<double>(shape_.inner) + 4) * 0x1p-24 * (magnitude + std::fabs(expected)) +
                                 std::fabs(expected) * rounding_unit(variant_.c_dtype);
        ASSERT_NEAR(c_.at(at), expected, tolerance) << "row " << r << " col " << c;
        squares += c_.at(at) * c_.at(at);
      }
    }
    if (variant_.squares) {
      ASSERT_NEAR(squares_, squares, 1e-12 * squares);
    }
  }

  Shape shape_;
  Variant variant_;
  int64_t lda_, ldb_, ldc_;
  Stored c_{kF32, 0};
  double squares_ = -1;
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (int bits = 0; bits < 8; ++bits) {
    for (int32_t dtype : {kF32, kBF16}) {
      Variant variant;
      variant.dtype = dtype;
      variant.transpose_a = (bits & 1) != 0;
      variant.transpose_b = (bits & 2) != 0;
      variant.packed = (bits & 4) != 0;
      all.push_back(variant);
    }
  }
  return all;
}

std::string name_of(const EngineCase& item, const Shape& shape, const Variant& v) {
  return std::string(item.engine->name) + " " + std::to_string(shape.rows) + "x" + std::to_string(shape.cols) + "x" +
         std::to_string(shape.inner) + (v.dtype == kF32 ? " f32" : " bf16") + (v.transpose_a ? " ta" : "") +
         (v.transpose_b ? " tb" : "") + (v.packed ? " packed" : "");
}

// Each dimension through 1..70 while the others stay odd and small, in every layout.
TEST(Matmul, EveryLengthInEveryDimensionAndLayout) {
  for (const EngineCase& item : engines()) {
    TestContext context(2, item.level);
    for (const Variant& variant : variants()) {
      if (variant.dtype == kF32 && !item.takes_f32) continue;
      for (int64_t length = 1; length <= 70; ++length) {
        for (const Shape& shape : {Shape{length, 37, 19}, Shape{13, length, 21}, Shape{13, 35, length}}) {
          SCOPED_TRACE(name_of(item, shape, variant));
          Variant strided = variant;
          strided.extra_ld = length % 3;
          Check(*item.engine, context.get(), shape, strided);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Several inner blocks and several tasks.
TEST(Matmul, BlocksOfTheInnerDimensionAndManyTasks) {
  for (const EngineCase& item : engines()) {
    TestContext context(2, item.level);
    for (const Variant& variant : variants()) {
      if (variant.dtype == kF32 && !item.takes_f32) continue;
      for (const Shape& shape : {Shape{26, 67, 1601}, Shape{150, 170, 33}}) {
        SCOPED_TRACE(name_of(item, shape, variant));
        Check(*item.engine, context.get(), shape, variant);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Matmul, AlphaAddAccumulateAndSumOfSquares) {
  for (const EngineCase& item : engines()) {
    TestContext context(2, item.level);
    for (int32_t dtype : {kF32, kBF16}) {
      if (dtype == kF32 && !item.takes_f32) continue;
      for (int32_t c_dtype : {kF32, kBF16}) {
        for (int32_t add_dtype : {0, kF32, kBF16}) {
          for (int bits = 0; bits < 4; ++bits) {
            for (const Shape& shape : {Shape{27, 41, 30}, Shape{13, 41, 800}, Shape{9, 70, 0}}) {
              Variant variant;
              variant.dtype = dtype;
              variant.c_dtype = c_dtype;
              variant.add_dtype = add_dtype;
              variant.one_row_added = add_dtype == kF32 && bits >= 2;
              variant.accumulate = (bits & 1) != 0 && c_dtype == kF32;
              variant.squares = (bits & 2) != 0;
              variant.alpha = -0.75f;
              variant.extra_ld = 5;
              SCOPED_TRACE(name_of(item, shape, variant));
              Check(*item.engine, context.get(), shape, variant);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST(Matmul, SameBitsAtAnyNumberOfThreadsAndPackedOrNot) {
  for (const EngineCase& item : engines()) {
    // The last ones: few rows, which read packed panels as they are.
    for (const Shape& shape : {Shape{70, 100, 900}, Shape{100, 131, 40}, Shape{1, 131, 901}, Shape{2, 33, 5},
                               Shape{3, 70, 39}, Shape{4, 64, 64}, Shape{5, 64, 63}}) {
      Variant variant;
      variant.dtype = kBF16;
      variant.squares = true;
      TestContext one(1, item.level);
      const Check first(*item.engine, one.get(), shape, variant);
      for (int threads : {2, 5}) {
        for (bool packed : {false, true}) {
          variant.packed = packed;
          TestContext many(threads, item.level);
          const Check other(*item.engine, many.get(), shape, variant);
          EXPECT_TRUE(first.result() == other.result()) << item.engine->name << " " << threads;
          EXPECT_EQ(first.squares(), other.squares()) << item.engine->name << " " << threads;
        }
      }
    }
  }
}

TEST(Matmul, AddMayBeTheResultItself) {
  for (const EngineCase& item : engines()) {
    TestContext context(1, item.level);
    const Stored a(kBF16, random_floats(40 * 24, 1)), b(kBF16, random_floats(24 * 33, 2));
    Stored in_place(kBF16, random_floats(40 * 33, 3)), residual = in_place, apart(kBF16, 40 * 33);
    invar_matmul_args args{};
    args.struct_size = sizeof(args);
    args.a_dtype = args.b_dtype = args.c_dtype = args.add_dtype = kBF16;
    args.rows = 40;
    args.cols = args.ldb = args.ldc = args.ld_add = 33;
    args.inner = args.lda = 24;
    Stored a_copy = a, b_copy = b;
    args.a = a_copy.data();
    args.b = b_copy.data();
    args.alpha = 1;
    args.add = residual.data();
    args.c = apart.data();
    ASSERT_EQ(matmul_with(*item.engine, context.get(), args), kOk);
    args.add = args.c = in_place.data();
    ASSERT_EQ(matmul_with(*item.engine, context.get(), args), kOk);
    EXPECT_TRUE(in_place == apart) << item.engine->name;
  }
}

// Values that are not finite come out as such, and only where they belong.
TEST(Matmul, NanAndInfinityStayInTheirRowAndColumn) {
  for (const EngineCase& item : engines()) {
    TestContext context(1, item.level);
    std::vector<float> values(20 * 50, 1.0f);
    values[3 * 50 + 7] = INFINITY;
    values[5 * 50 + 9] = NAN;
    Stored a(kBF16, values), b(kBF16, std::vector<float>(50 * 40, 1.0f)), c(kBF16, 20 * 40);
    invar_matmul_args args{};
    args.struct_size = sizeof(args);
    args.a_dtype = args.b_dtype = args.c_dtype = kBF16;
    args.rows = 20;
    args.cols = args.ldb = args.ldc = 40;
    args.inner = args.lda = 50;
    args.a = a.data();
    args.b = b.data();
    args.c = c.data();
    args.alpha = 1;
    ASSERT_EQ(matmul_with(*item.engine, context.get(), args), kOk);
    for (size_t i = 0; i < 20 * 40; ++i) {
      if (i / 40 == 3) {
        EXPECT_TRUE(std::isinf(c.at(i)));
      } else if (i / 40 == 5) {
        EXPECT_TRUE(std::isnan(c.at(i)));
      } else {
        EXPECT_EQ(c.at(i), 50);
      }
    }
  }
}

// Tiles are given back: a thread that keeps them would slow every context switch of the host.
TEST(Matmul, AmxEngineReleasesItsTiles) {
  if (usable_level() < Level::kAvx512) GTEST_SKIP() << "the model's packing needs AVX-512";
  TestContext context(1, Level::kAvx512);
  Variant variant;
  variant.dtype = kBF16;
  Check(kAmxModelEngine, context.get(), Shape{40, 40, 40}, variant);
  EXPECT_FALSE(amx_model::is_configured());
}

// What tells TDPBF16PS from plain FP32 sums: even and odd elements sum up apart, and subnormals vanish.
TEST(AmxModel, RoundsAndFlushesAsTheInstructionDoes) {
  TileConfig config{};
  config.palette = 1;
  for (int tile = 0; tile < 3; ++tile) {
    config.rows[tile] = 2;
    config.row_bytes[tile] = 8;
  }
  amx_model::configure(&config);
  const auto half = [](float value) { return bf16_from_f32(value); };
  // Row 0: 1 * 1 + 2^-24 * 1 over two pairs; the odd sum 2^-24 + 2^-24 survives because it stays apart from 1.
  const uint16_t a[2][4] = {{half(1), half(0x1p-24f), half(0), half(0x1p-24f)},
                            {half(0x1p-127f), half(0), half(0), half(0)}};
  const uint16_t b[2][4] = {{half(1), half(1), half(1), half(1)}, {half(1), half(1), half(1), half(1)}};
  float c[2][2] = {};
  amx_model::load(1, a, 8);
  amx_model::load(2, b, 8);
  amx_model::zero(0);
  amx_model::dot_bf16(0, 1, 2);
  amx_model::store(0, c, 8);
  amx_model::release();
  EXPECT_EQ(c[0][0], 1 + 0x1p-23f);
  EXPECT_EQ(c[1][0], 0);
}

TEST(Matmul, OutOfMemoryIsReportedBeforeAnythingIsWritten) {
  TestContext context(1);
  context.get().host.allocate = [](void*, size_t, size_t) -> void* { return nullptr; };
  float a[4] = {1, 2, 3, 4}, c[4] = {7, 7, 7, 7};
  invar_matmul_args args{};
  args.struct_size = sizeof(args);
  args.a_dtype = args.b_dtype = args.c_dtype = kF32;
  args.rows = args.cols = args.inner = args.lda = args.ldb = args.ldc = 2;
  args.a = args.b = a;
  args.c = c;
  args.alpha = 1;
  EXPECT_EQ(matmul_with(portable::kWideEngine, context.get(), args), kResourceExhausted);
  EXPECT_EQ(c[0], 7);
}

}  // namespace
}  // namespace invar::cpu
