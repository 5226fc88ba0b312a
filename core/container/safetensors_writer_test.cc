#include "core/container/safetensors_writer.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/base/memory_files.h"

namespace invar {
namespace {

std::vector<std::byte> pattern(const TensorInfo& tensor) {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.byte_size()));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + tensor.name.size());
  return bytes;
}

TEST(SafetensorsWriter, AlignsEveryTensorToItsElement) {
  MemoryFiles files;
  auto writer = SafetensorsWriter::create(files, "/t.safetensors",
                                          {{"b8", DType::kE4M3FN, {3, 5}},
                                           {"w", DType::kBF16, {7}},
                                           {"scalar", DType::kF32, {}},
                                           {"a8", DType::kE4M3FN, {1}},
                                           {"i", DType::kI64, {1}},
                                           {"empty", DType::kF32, {0, 3}}});
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  ASSERT_TRUE(writer->reserve().ok());
  for (const TensorInfo& tensor : writer->tensors()) ASSERT_TRUE(writer->write(tensor.name, 0, pattern(tensor)).ok());
  ASSERT_TRUE(writer->close(true).ok());

  const auto file = SafetensorsFile::open(files, "/t.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->size(), writer->file_size());
  EXPECT_EQ(file->header().metadata(), SafetensorsWriter::default_metadata());
  EXPECT_EQ(file->header().data_begin() % 8, 0);
  EXPECT_EQ(file->header().tensors().front().name, "i");
  EXPECT_EQ(file->header().tensors().back().name, "b8");
  for (const TensorInfo& tensor : file->header().tensors()) {
    EXPECT_EQ(tensor.begin % std::max(1, bits_of(tensor.dtype) / 8), 0) << tensor.name;
    EXPECT_EQ(*file->read_all(tensor), pattern(tensor)) << tensor.name;
  }
}

// The reference library's files come out byte for byte when the same tensors are written again.
TEST(SafetensorsWriter, RepeatsTheReferenceWritersBytes) {
  for (const char* name :
       {"tests/cases/fg-llama-b32/expected.safetensors", "tests/cases/st-dtypes/expected.safetensors",
        "tests/cases/fg-llama-b32/input/model.safetensors"}) {
    SCOPED_TRACE(name);
    const auto source = SafetensorsFile::open(posix_files(), name);
    ASSERT_TRUE(source.ok()) << source.status().message();
    std::vector<TensorSpec> specs(source->header().tensors().begin(), source->header().tensors().end());
    MemoryFiles files;
    auto writer = SafetensorsWriter::create(files, "/copy.safetensors", specs, source->header().metadata());
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (const TensorInfo& tensor : source->header().tensors()) {
      ASSERT_TRUE(writer->write(tensor.name, 0, *source->read_all(tensor)).ok());
    }
    ASSERT_TRUE(writer->close(false).ok());
    EXPECT_TRUE(*read_text(posix_files(), name, 1 << 24) == *read_text(files, "/copy.safetensors", 1 << 24));
  }
}

TEST(SafetensorsWriter, TakesPiecesFromSeveralThreads) {
  const std::string path = join_path(::testing::TempDir(), "pieces.safetensors");
  auto writer =
      SafetensorsWriter::create(posix_files(), path, {{"a", DType::kU8, {1000, 10}}, {"b", DType::kU8, {10000}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->reserve().ok());
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&, worker] {
      for (const TensorInfo& tensor : writer->tensors()) {
        const auto bytes = pattern(tensor);
        for (int64_t at = worker * 100; at < 10000; at += 400) {
          EXPECT_TRUE(writer->write(tensor, at, std::span(bytes).subspan(static_cast<size_t>(at), 100)).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(writer->close(false).ok());
  const auto file = SafetensorsFile::open(posix_files(), path);
  ASSERT_TRUE(file.ok());
  for (const TensorInfo& tensor : file->header().tensors()) EXPECT_EQ(*file->read_all(tensor), pattern(tensor));
  (void)posix_files().remove_all(path).ok();
}

TEST(SafetensorsWriter, ClosesOnlyWhenEveryByteWasWritten) {
  MemoryFiles files;
  auto writer = SafetensorsWriter::create(files, "/t.safetensors", {{"a", DType::kU8, {4}}});
  ASSERT_TRUE(writer.ok());
  const std::byte bytes[4] = {};
  ASSERT_TRUE(writer->write("a", 0, std::span(bytes).first(3)).ok());
  EXPECT_EQ(writer->close(false).reason(), "safetensors.incomplete");
  EXPECT_EQ(writer->write("a", 2, std::span(bytes).first(3)).reason(), "tensor.out_of_range");
  EXPECT_EQ(writer->write("b", 0, std::span(bytes).first(1)).reason(), "safetensors.bad_tensor");
  ASSERT_TRUE(writer->write("a", 3, std::span(bytes).first(1)).ok());
  EXPECT_TRUE(writer->close(false).ok());
}

TEST(SafetensorsWriter, RefusesWhatReadersWouldRefuse) {
  MemoryFiles files;
  const auto reason = [&](std::vector<TensorSpec> tensors) {
    const auto writer = SafetensorsWriter::create(files, "/t.safetensors", std::move(tensors));
    return writer.ok() ? "ok" : writer.status().reason();
  };
  EXPECT_EQ(reason({{"a", DType::kU8, {1}}, {"a", DType::kF32, {1}}}), "safetensors.bad_tensor");
  EXPECT_EQ(reason({{"a\xff", DType::kU8, {1}}}), "safetensors.bad_tensor");
  EXPECT_EQ(reason({{"__metadata__", DType::kU8, {1}}}), "safetensors.bad_tensor");
  EXPECT_EQ(reason({{"a", DType::kUnspecified, {1}}}), "safetensors.bad_tensor");
  EXPECT_EQ(reason({{"a", DType::kU8, {-1}}}), "safetensors.bad_tensor");
  EXPECT_EQ(reason({{"a", DType::kE2M1, {3}}}), "safetensors.bad_tensor");
  EXPECT_EQ(reason({{"a", DType::kU8, {INT64_MAX, 2}}}), "safetensors.bad_tensor");
  EXPECT_FALSE(files.exists("/t.safetensors"));
}

}  // namespace
}  // namespace invar
