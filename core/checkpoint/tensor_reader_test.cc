// Reading single tensors and rows: the bytes are those of a conversion, whichever rows are asked for.
#include "core/checkpoint/tensor_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/base/memory_files.h"
#include "core/checkpoint/convert.h"
#include "core/checkpoint/test_checkpoint.h"

namespace invar {
namespace {

class Reading : public testing::Test {
 protected:
  void open(const TestCheckpoint& checkpoint) {
    checkpoint.write(files_, "/in", kBlockConfig);
    auto opened = TensorReader::open(files_, {.path = "/in"});
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    reader_ = std::move(opened).value();
  }
  const TensorPlan& plan(const std::string& name) {
    const int64_t index = reader_->find(name);
    EXPECT_GE(index, 0) << name;
    return reader_->layout().tensors[static_cast<size_t>(std::max<int64_t>(index, 0))];
  }
  Status read(const std::string& name, int64_t first, int64_t rows, DType dtype, std::span<std::byte> out) {
    return reader_->read_rows(plan(name), first, rows, dtype, out, pool_, nullptr);
  }
  // What convert() writes for it.
  std::vector<std::byte> converted(v1::TargetFormat target, const std::string& name) {
    v1::ConvertConfig config;
    config.set_source("/in");
    config.set_destination(cat("/out", target));
    config.set_target(target);
    const auto report = convert(config, {files_, pool_});
    EXPECT_TRUE(report.ok()) << report.status().message();
    const auto folder = CheckpointFolder::open(files_, config.destination());
    EXPECT_TRUE(folder.ok());
    return *folder->read_all(*folder->find(name));
  }

  MemoryFiles files_;
  ThreadPool pool_{2};
  std::unique_ptr<TensorReader> reader_;
};

TEST_F(Reading, GivesTheBytesOfAConversionForAnyRows) {
  // 300 rows of 1000 columns: several tiles, whose ends lie inside rows and blocks.
  TestCheckpoint checkpoint;
  checkpoint.add_codes("w.weight", DType::kE4M3FN, {300, 1000}, 7).add_scales("w.weight_scale_inv", {19, 63}, 8);
  checkpoint.add_bf16("norm.weight", {300}, 9);
  open(checkpoint);
  const std::pair<v1::TargetFormat, DType> targets[] = {{v1::TARGET_FORMAT_BF16, DType::kBF16},
                                                        {v1::TARGET_FORMAT_FP16, DType::kF16},
                                                        {v1::TARGET_FORMAT_FP32, DType::kF32}};
  for (const auto& [target, dtype] : targets) {
    const auto whole = converted(target, "w.weight");
    const int64_t row_bytes = bytes_of(dtype, 1000);
    for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 300}, {0, 1}, {17, 5}, {131, 169}, {299, 1}}) {
      // One byte off alignment: hosts read into the middle of their files' images too.
      std::vector<std::byte> out(static_cast<size_t>(rows * row_bytes) + 1);
      const auto memory = std::span(out).subspan(1);
      ASSERT_TRUE(read("w.weight", first, rows, dtype, memory).ok());
      EXPECT_TRUE(std::equal(memory.begin(), memory.end(), whole.begin() + first * row_bytes)) << first << " " << rows;
    }
    std::vector<std::byte> norm(static_cast<size_t>(bytes_of(dtype, 300)));
    ASSERT_TRUE(read("norm.weight", 0, 300, dtype, norm).ok());
    // Conversion leaves 16-bit tensors that are not quantised as they are unless the target is wider.
    std::vector<std::byte> stored(600);
    ASSERT_TRUE(read("norm.weight", 0, 300, DType::kBF16, stored).ok());
    if (dtype == DType::kF32) {
      uint32_t wide;
      uint16_t narrow;
      std::memcpy(&wide, norm.data() + 4 * 299, 4);
      std::memcpy(&narrow, stored.data() + 2 * 299, 2);
      EXPECT_EQ(wide, static_cast<uint32_t>(narrow) << 16);
    }
  }
}

TEST_F(Reading, RefusesWhatDoesNotFitAndTouchesNothing) {
  TestCheckpoint checkpoint = block_checkpoint();
  checkpoint.add("ids", DType::kI64, {2}, std::vector<std::byte>(16, std::byte{1}));
  open(checkpoint);
  std::vector<std::byte> out(40 * 72 * 2, std::byte{0xEE});
  const auto reason = [&](const char* name, int64_t first, int64_t rows, DType dtype, size_t bytes) {
    return read(name, first, rows, dtype, std::span(out).first(bytes)).reason();
  };
  EXPECT_EQ(reason("l.q_proj.weight", 40, 1, DType::kBF16, 144), "checkpoint.row_range");
  EXPECT_EQ(reason("l.q_proj.weight", -1, 1, DType::kBF16, 144), "checkpoint.row_range");
  EXPECT_EQ(reason("l.q_proj.weight", 1, INT64_MAX, DType::kBF16, 144), "checkpoint.row_range");
  EXPECT_EQ(reason("l.q_proj.weight", 0, 1, DType::kBF16, 143), "checkpoint.read_size");
  EXPECT_EQ(reason("l.q_proj.weight", 0, 1, DType::kE4M3FN, 72), "checkpoint.read_dtype");
  EXPECT_EQ(reason("ids", 0, 2, DType::kF32, 8), "checkpoint.read_dtype");
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](std::byte b) { return b == std::byte{0xEE}; }));
  EXPECT_TRUE(read("ids", 0, 2, DType::kI64, std::span(out).first(16)).ok());
  EXPECT_EQ(out[15], std::byte{1});
  EXPECT_TRUE(read("l.q_proj.weight", 40, 0, DType::kBF16, {}).ok());
  EXPECT_EQ(reader_->find("l.q_proj.weight_scale_inv"), -1);
}

TEST_F(Reading, NamesTheNanAndStopsWhenCancelled) {
  TestCheckpoint checkpoint = block_checkpoint();
  checkpoint.bytes_of_tensor("l.q_proj.weight")[75] = std::byte{0x7F};
  open(checkpoint);
  std::vector<std::byte> out(40 * 72 * 2);
  const Status nan = read("l.q_proj.weight", 0, 40, DType::kBF16, out);
  EXPECT_EQ(nan.reason(), "checkpoint.nan_code");
  EXPECT_NE(nan.message().find("[1, 3]"), std::string::npos) << nan.message();
  EXPECT_TRUE(read("l.q_proj.weight", 2, 38, DType::kBF16, std::span(out).first(38 * 144)).ok());
  CancelFlag cancel;
  cancel.cancel();
  EXPECT_EQ(reader_->read_rows(plan("l.q_proj.weight"), 2, 1, DType::kBF16, std::span(out).first(144), pool_, &cancel)
                .reason(),
            "cancelled");
}

}  // namespace
}  // namespace invar
