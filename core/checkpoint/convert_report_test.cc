// What a conversion says of a tensor: the largest code of every block, how the scales were chosen, how much was encoded
// back, and who wrote the source.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/base/memory_files.h"
#include "core/checkpoint/convert.h"
#include "core/checkpoint/test_checkpoint.h"

namespace invar {
namespace {

constexpr int64_t kRows = 300, kCols = 1000, kBlock = 64, kBlockRows = 5, kBlockCols = 16;
constexpr char kWideBlocks[] =
    R"({"model_type": "llama", "quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}})";

// Several tiles, ragged blocks, tiles that end within a block.
class Report : public testing::Test {
 protected:
  Report() {
    made_.add_codes("a.weight", DType::kE4M3FN, {kRows, kCols}, 1);
    made_.add_scales("a.weight_scale_inv", {kBlockRows, kBlockCols}, 2);
  }

  uint8_t& code(int64_t row, int64_t col) {
    return reinterpret_cast<uint8_t&>(made_.bytes_of_tensor("a.weight")[static_cast<size_t>(row * kCols + col)]);
  }
  void set_scales(float (*change)(float)) {
    auto& bytes = made_.bytes_of_tensor("a.weight_scale_inv");
    for (size_t i = 0; i < bytes.size(); i += 4) {
      float scale;
      std::memcpy(&scale, &bytes[i], 4);
      scale = change(scale);
      std::memcpy(&bytes[i], &scale, 4);
    }
  }
  // Makes `largest` the largest code of every block.
  void cap_codes(uint8_t largest) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        uint8_t& at = code(row, col);
        if ((at & 0x7F) > largest) at = static_cast<uint8_t>((at & 0x80) | largest);
        if (row % kBlock == kRows % kBlock - 1 && col % kBlock == kCols % kBlock - 1) at = largest;
      }
    }
  }
  v1::ConvertedTensor line(const std::string& config = kWideBlocks) {
    MemoryFiles files;
    made_.write(files, "/in", config);
    v1::ConvertConfig convert_config;
    convert_config.set_source("/in");
    convert_config.set_destination("/out");
    const auto report = convert(convert_config, {files, pool_});
    EXPECT_TRUE(report.ok()) << report.status().message();
    if (!report.ok()) return {};
    report_ = *report;
    for (const v1::ConvertedTensor& tensor : report->tensors()) {
      if (tensor.name() == "a.weight") return tensor;
    }
    ADD_FAILURE() << "no line";
    return {};
  }
  bool warns(const v1::ConvertedTensor& tensor, const std::string& reason) {
    for (const std::string& warning : tensor.warnings()) {
      if (warning.starts_with(reason)) return true;
    }
    return false;
  }

  TestCheckpoint made_;
  ThreadPool pool_{2};
  v1::ConvertReport report_;
};

TEST_F(Report, CountsBlocksByTheirLargestCode) {
  code(70, 130) = 0xFE;  // -448
  code(299, 999) = 0x7E;
  int64_t full = 0, upper = 0;
  for (int64_t block_row = 0; block_row < kBlockRows; ++block_row) {
    for (int64_t block_col = 0; block_col < kBlockCols; ++block_col) {
      float largest = 0;
      for (int64_t row = block_row * kBlock; row < std::min(kRows, (block_row + 1) * kBlock); ++row) {
        for (int64_t col = block_col * kBlock; col < std::min(kCols, (block_col + 1) * kBlock); ++col) {
          largest = std::max(largest, std::fabs(decode(DType::kE4M3FN, code(row, col))));
        }
      }
      full += largest == 448;
      upper += largest > 224 && largest < 448;
    }
  }
  const v1::ConvertedTensor tensor = line();
  EXPECT_EQ(tensor.blocks(), kBlockRows * kBlockCols);
  EXPECT_EQ(tensor.blocks_full(), full);
  EXPECT_EQ(tensor.blocks_upper(), upper);
  EXPECT_GE(full, 2);
  EXPECT_GT(upper, 0);
  EXPECT_EQ(tensor.scale_rule(), "");
}

TEST_F(Report, NamesTheRuleOfTheScales) {
  cap_codes(0x7E);
  EXPECT_EQ(line().scale_rule(), "amax");
  set_scales([](float scale) { return std::exp2(std::floor(std::log2(scale))); });
  cap_codes(0x7A);
  EXPECT_EQ(line().scale_rule(), "amax, rounded up to a power of two");
  cap_codes(0x60);
  const v1::ConvertedTensor low = line();
  EXPECT_EQ(low.scale_rule(), "powers of two");
  EXPECT_TRUE(warns(low, "checkpoint.low_codes"));
}

TEST_F(Report, SaysNothingOfLowCodesWhereFewBlocksHaveThem) {
  cap_codes(0x7E);
  for (int64_t row = 0; row < kBlock; ++row) {
    for (int64_t col = 0; col < kBlock; ++col) code(row, col) &= 0x9F;
  }
  const v1::ConvertedTensor tensor = line();
  EXPECT_EQ(tensor.blocks_full(), tensor.blocks() - 1);
  EXPECT_FALSE(warns(tensor, "checkpoint.low_codes"));
}

TEST_F(Report, EveryElementIsEncodedBack) {
  const v1::ConvertedTensor tensor = line();
  EXPECT_EQ(tensor.reencode_checked(), kRows * kCols);
  EXPECT_EQ(tensor.reencode_mismatched(), 0);
}

TEST_F(Report, ATileThatProvesNothingTakesTheProofFromTheTensor) {
  set_scales([](float scale) { return scale * 0x1p-120f; });  // the exact path, whose results are sampled
  const v1::ConvertedTensor tensor = line();
  EXPECT_GT(tensor.reencode_checked(), 0);
  EXPECT_LT(tensor.reencode_checked(), kRows * kCols);
}

TEST_F(Report, GuessesWhoWroteIt) {
  const auto producer_of = [&](const std::string& quantization) {
    line(
        cat(R"({"model_type": "llama", "quantization_config": {)", quantization, R"("weight_block_size": [64, 64]}})"));
    return report_.producer();
  };
  EXPECT_EQ(producer_of(R"("quant_method": "fp8", "scale_fmt": "ue8m0", )"), "DeepSeek V3.1 or later");
  EXPECT_EQ(report_.producer_reason(), R"(quant_method "fp8", layout fp8-block-scale-inv, scale_fmt "ue8m0")");
  EXPECT_EQ(producer_of(R"("quant_method": "fp8", )"), "DeepSeek V3 or transformers' fine-grained FP8");
  EXPECT_EQ(producer_of(R"("quant_method": "modelopt", "producer": {"name": "modelopt", "version": "0.47.0"}, )"),
            "modelopt 0.47.0");
  EXPECT_EQ(report_.producer_reason(), "config.json names it");
  EXPECT_EQ(producer_of(R"("quant_method": "something new", )"), "");
}

}  // namespace
}  // namespace invar
