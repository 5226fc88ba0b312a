#include "core/checkpoint/model_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/base/memory_files.h"
#include "core/container/checkpoint_folder.h"
#include "core/numerics/formats.h"
#include "core/numerics/normal.h"

namespace invar {
namespace {

std::vector<float> normal(uint64_t stream, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = normal_at(7, stream, i);
  return values;
}

TEST(ModelWriter, WritesShardsIndexConfigAndSideFiles) {
  MemoryFiles files;
  const auto a = normal(1, 300 * 5), b = normal(2, 64), c = normal(3, 64);
  ModelFolder folder;
  folder.config = "{}";
  folder.tensors = {tensor_in_memory("a", {300, 5}, DType::kF32, a.data()),
                    tensor_in_memory("b", {64}, DType::kF32, b.data()),
                    tensor_in_memory("c", {8, 8}, DType::kF32, c.data())};
  folder.tensors[0].dtype = DType::kBF16;
  folder.tensors[2].dtype = DType::kF16;
  folder.side_files = {{"tokenizer.json", "{\"t\":1}", ""}};
  ModelWriteOptions options;
  options.max_shard_bytes = 3100;
  ASSERT_TRUE(write_model_folder(files, "/m", folder, options).ok());
  EXPECT_TRUE(files.exists("/m/model.safetensors.index.json"));
  const auto opened = CheckpointFolder::open(files, "/m");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_TRUE(opened->findings().empty());
  EXPECT_EQ(opened->files().size(), 2u);
  EXPECT_EQ(opened->side_files(), (std::vector<std::string>{"config.json", "tokenizer.json"}));
  const auto bytes = *opened->read_all(*opened->find("a"));
  for (size_t i = 0; i < a.size(); ++i) {
    uint16_t stored;
    std::memcpy(&stored, bytes.data() + 2 * i, 2);
    ASSERT_EQ(stored, bf16_from_f32(a[i]));
  }
  EXPECT_EQ(opened->find("c")->dtype, DType::kF16);
  const auto exact = *opened->read_all(*opened->find("b"));
  EXPECT_EQ(std::memcmp(exact.data(), b.data(), exact.size()), 0);
}

TEST(ModelWriter, GivesTheSameBytesAtAnyNumberOfThreads) {
  const auto a = normal(1, 3 << 19);
  ModelFolder folder;
  folder.tensors = {tensor_in_memory("a", {3 << 10, 512}, DType::kF32, a.data())};
  folder.tensors[0].dtype = DType::kBF16;
  MemoryFiles one, many;
  ModelWriteOptions options;
  ASSERT_TRUE(write_model_folder(one, "/m", folder, options).ok());
  ThreadPool pool(4);
  options.pool = &pool;
  ASSERT_TRUE(write_model_folder(many, "/m", folder, options).ok());
  EXPECT_TRUE(one.snapshot() == many.snapshot());
}

TEST(ModelWriter, IsCompleteOrAbsentWhereverAWriteFails) {
  const auto a = normal(1, 100);
  ModelFolder folder;
  folder.config = "{}";
  folder.tensors = {tensor_in_memory("a", {100}, DType::kF32, a.data()),
                    tensor_in_memory("b", {100}, DType::kF32, a.data())};
  ModelWriteOptions options;
  options.max_shard_bytes = 400;
  MemoryFiles whole;
  ASSERT_TRUE(write_model_folder(whole, "/m", folder, options).ok());
  for (int64_t fail_at = 0; fail_at < 200; ++fail_at) {
    MemoryFiles disk;
    FaultyFiles files(disk, fail_at, /*stays_dead=*/true);
    const Status status = write_model_folder(files, "/m", folder, options);
    if (disk.exists("/m")) {
      const auto opened = CheckpointFolder::open(disk, "/m");
      ASSERT_TRUE(opened.ok()) << fail_at << ": " << opened.status().message();
      EXPECT_EQ(opened->tensors().size(), 2u);
      EXPECT_TRUE(disk.exists("/m/config.json"));
    }
    if (!status.ok()) {
      EXPECT_EQ(status.reason(), "file.no_space");
      continue;
    }
    EXPECT_TRUE(disk.snapshot() == whole.snapshot());
    EXPECT_GT(fail_at, 20);
    return;
  }
  FAIL() << "never succeeded";
}

TEST(ModelWriter, StopsWhenCancelled) {
  const auto a = normal(1, 100);
  ModelFolder folder;
  folder.tensors = {tensor_in_memory("a", {100}, DType::kF32, a.data())};
  CancelFlag flag;
  flag.cancel();
  ModelWriteOptions options;
  options.cancel = &flag;
  MemoryFiles files;
  EXPECT_EQ(write_model_folder(files, "/m", folder, options).code(), Code::kCancelled);
  EXPECT_TRUE(files.snapshot().empty());
}

TEST(ModelWriter, RefusesAFullFolder) {
  MemoryFiles files;
  files.put("/m/notes.txt", "mine");
  EXPECT_EQ(write_model_folder(files, "/m", {}, {}).reason(), "output.not_empty");
  EXPECT_EQ(*read_text(files, "/m/notes.txt", 10), "mine");
}

}  // namespace
}  // namespace invar
