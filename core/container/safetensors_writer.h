// Writes one safetensors file, streaming: all tensors are declared first, then their bytes arrive in any order.
//
//   INVAR_ASSIGN(auto writer, SafetensorsWriter::create(files, path, {{"w", DType::kBF16, {4, 8}}}));
//   INVAR_TRY(writer.reserve());                                  // a full disk fails here
//   INVAR_TRY(writer.write("w", /*offset=*/0, bytes));
//   INVAR_TRY(writer.close(/*durable=*/true));                    // fails unless every byte was written
//
// The file has `{` first, a header padded with spaces to 8 bytes, tensors by element width (widest first) and then
// by name, so that every tensor is aligned to its element. Same tensors, same bytes, whatever the order of writes.
// Invariant: the header is complete from the first byte on; what close() has not blessed is not a checkpoint, so
// write into a StagedDirectory or beside the target.
// Thread rule: write() from any number of threads for ranges that do not overlap; the rest from one thread.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/container/safetensors.h"

namespace invar {

class SafetensorsWriter {
 public:
  // Older loaders refuse files without this.
  static StringMap default_metadata() { return {{"format", "pt"}}; }

  // Refuses (INVALID_ARGUMENT) names that repeat, are empty of meaning to a reader (not UTF-8, "__metadata__"), shapes
  // that overflow or are not whole bytes, and headers beyond the readers' limit.
  static Result<SafetensorsWriter> create(FileSystem& files, const std::string& path, std::vector<TensorSpec> tensors,
                                          const StringMap& metadata = default_metadata());

  const std::string& path() const { return file_->path(); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in file order
  const TensorInfo* find(std::string_view name) const;                 // null when not declared
  int64_t file_size() const { return file_size_; }

  Status reserve() { return file_->reserve(file_size_); }
  Status write(std::string_view name, int64_t offset, std::span<const std::byte> bytes);
  // `tensor` is one of tensors().
  Status write(const TensorInfo& tensor, int64_t offset, std::span<const std::byte> bytes);
  // "safetensors.incomplete" when a tensor did not get all its bytes, or got some twice.
  Status close(bool durable);

 private:
  SafetensorsWriter() = default;
  std::unique_ptr<WritableFile> file_;
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> by_name_;
  std::unique_ptr<std::atomic<int64_t>[]> written_;  // bytes per tensor
  int64_t file_size_ = 0;
};

}  // namespace invar
