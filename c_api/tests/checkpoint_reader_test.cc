// Reading a checkpoint tensor by tensor through the C interface.
#include <filesystem>
#include <thread>
#include <vector>

#include "c_api/tests/abi_support.h"

namespace invar_test {
namespace {

// A copy of the case: links that leave the folder, as runfiles are, would be refused.
std::string folder() {
  const std::string copy = testing::TempDir() + "/checkpoint_reader";
  if (!std::filesystem::exists(copy)) std::filesystem::copy("tests/cases/autofp8-static-llama/input", copy);
  return copy;
}
constexpr char kName[] = "model.layers.0.self_attn.k_proj.weight";

struct Opened {
  Owned<invar_runtime> runtime = make_runtime(2);
  Owned<invar_checkpoint> checkpoint;
};

Opened open_case() {
  Opened opened;
  const std::string config = message(opened.runtime.get(), "OpenConfig", R"({"path": ")" + folder() + "\"}");
  invar_checkpoint* checkpoint = nullptr;
  EXPECT_EQ(text_of(invar_checkpoint_open(opened.runtime.get(), config.data(), config.size(), &checkpoint)), "ok");
  opened.checkpoint.reset(checkpoint);
  return opened;
}

int64_t index_of(const invar_checkpoint* checkpoint, const std::string& name) {
  int64_t index = -1;
  EXPECT_EQ(text_of(invar_checkpoint_find(checkpoint, name.data(), name.size(), &index)), "ok");
  return index;
}

TEST(CheckpointReader, DescribesEveryTensorWithItsRule) {
  const Opened opened = open_case();
  int64_t count = 0, quantized = 0;
  ASSERT_EQ(text_of(invar_checkpoint_count(opened.checkpoint.get(), &count)), "ok");
  EXPECT_EQ(count, 20);  // 14 matrices and 6 tensors that stay as they are
  for (int64_t i = 0; i < count; ++i) {
    invar_checkpoint_tensor tensor = INVAR_CHECKPOINT_TENSOR_INIT;
    ASSERT_EQ(text_of(invar_checkpoint_describe(opened.checkpoint.get(), i, &tensor)), "ok");
    EXPECT_EQ(index_of(opened.checkpoint.get(), tensor.name), i);
    EXPECT_STREQ(tensor.rule, tensor.quantized ? "tensor_scale" : "copy");
    EXPECT_STREQ(tensor.file, "model.safetensors");
    quantized += tensor.quantized;
  }
  EXPECT_EQ(quantized, 14);
  invar_checkpoint_tensor tensor = INVAR_CHECKPOINT_TENSOR_INIT;
  ASSERT_EQ(
      text_of(invar_checkpoint_describe(opened.checkpoint.get(), index_of(opened.checkpoint.get(), kName), &tensor)),
      "ok");
  EXPECT_EQ(tensor.dtype, INVAR_DTYPE_FP8_E4M3);
  EXPECT_EQ(tensor.rank, 2);
  EXPECT_EQ(tensor.shape[0], 32);
  EXPECT_EQ(tensor.shape[1], 64);
  EXPECT_EQ(tensor.elements, 32 * 64);
  EXPECT_EQ(tensor.rows, 32);
}

TEST(CheckpointReader, RowsAreThoseOfTheWholeFromAnyThread) {
  Opened opened = open_case();
  const invar_checkpoint* checkpoint = opened.checkpoint.get();
  const int64_t index = index_of(checkpoint, kName);
  opened.runtime.reset();  // children keep it alive
  std::vector<uint16_t> whole(32 * 64);
  ASSERT_EQ(text_of(invar_checkpoint_read_rows(checkpoint, index, 0, 32, INVAR_DTYPE_BF16, nullptr, whole.data(),
                                               whole.size() * 2)),
            "ok");
  EXPECT_NE(whole[0], 0);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t row = t; row < 32; row += 4) {
        std::vector<uint16_t> got(64);
        EXPECT_EQ(text_of(invar_checkpoint_read_rows(checkpoint, index, row, 1, INVAR_DTYPE_BF16, nullptr, got.data(),
                                                     got.size() * 2)),
                  "ok");
        EXPECT_TRUE(std::equal(got.begin(), got.end(), whole.begin() + row * 64));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(CheckpointReader, RefusesWhatIsNotThere) {
  const Opened opened = open_case();
  const invar_checkpoint* checkpoint = opened.checkpoint.get();
  int64_t index = 7;
  EXPECT_EQ(reason_of(invar_checkpoint_find(checkpoint, "absent", 6, &index)), "checkpoint.no_tensor");
  EXPECT_EQ(index, 7);
  invar_checkpoint_tensor tensor = INVAR_CHECKPOINT_TENSOR_INIT;
  EXPECT_EQ(reason_of(invar_checkpoint_describe(checkpoint, 20, &tensor)), "checkpoint.tensor_index");
  EXPECT_EQ(reason_of(invar_checkpoint_describe(checkpoint, -1, &tensor)), "checkpoint.tensor_index");
  tensor.struct_size = 8;
  EXPECT_EQ(reason_of(invar_checkpoint_describe(checkpoint, 0, &tensor)), "argument.struct_size");
  uint16_t memory[64];
  index = index_of(checkpoint, kName);
  const auto read = [&](int64_t first, int64_t rows, int32_t dtype, size_t capacity) {
    return reason_of(invar_checkpoint_read_rows(checkpoint, index, first, rows, dtype, nullptr, memory, capacity));
  };
  EXPECT_EQ(read(0, 1, INVAR_DTYPE_BF16, 127), "checkpoint.read_size");
  EXPECT_EQ(read(32, 1, INVAR_DTYPE_BF16, 128), "checkpoint.row_range");
  EXPECT_EQ(read(0, 1, INVAR_DTYPE_I8, 128), "checkpoint.read_dtype");
  EXPECT_EQ(read(0, 1, 12345, 128), "checkpoint.read_dtype");
  invar_cancel* cancel = nullptr;
  ASSERT_EQ(text_of(invar_cancel_create(opened.runtime.get(), &cancel)), "ok");
  const Owned<invar_cancel> owner(cancel);
  invar_cancel_request(cancel);
  EXPECT_EQ(code_of(invar_checkpoint_read_rows(checkpoint, index, 0, 1, INVAR_DTYPE_BF16, cancel, memory, 128)),
            INVAR_CANCELLED);
}

TEST(CheckpointReader, NullIsInvalid) {
  const Opened opened = open_case();
  const invar_checkpoint* checkpoint = opened.checkpoint.get();
  invar_checkpoint* made = opened.checkpoint.get();
  int64_t number = 0;
  invar_checkpoint_tensor tensor = INVAR_CHECKPOINT_TENSOR_INIT;
  char memory[8];
  EXPECT_EQ(code_of(invar_checkpoint_open(nullptr, "", 0, &made)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(code_of(invar_checkpoint_open(opened.runtime.get(), "", 0, nullptr)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(reason_of(invar_checkpoint_open(opened.runtime.get(), "", 0, &made)), "config.missing_field");
  EXPECT_EQ(code_of(invar_checkpoint_count(nullptr, &number)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(invar_checkpoint_count(checkpoint, nullptr)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(invar_checkpoint_find(nullptr, "a", 1, &number)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(invar_checkpoint_find(checkpoint, nullptr, 1, &number)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(invar_checkpoint_find(checkpoint, "a", 1, nullptr)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(invar_checkpoint_describe(nullptr, 0, &tensor)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(invar_checkpoint_describe(checkpoint, 0, nullptr)), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(invar_checkpoint_read_rows(nullptr, 0, 0, 1, INVAR_DTYPE_BF16, nullptr, memory, 8)),
            INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(code_of(invar_checkpoint_read_rows(checkpoint, 0, 0, 1, INVAR_DTYPE_BF16, nullptr, nullptr, 8)),
            INVAR_INVALID_ARGUMENT);
  invar_checkpoint_release(nullptr);
}

}  // namespace
}  // namespace invar_test
