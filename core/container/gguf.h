// GGUF files (llama.cpp): magic, counts, key-value pairs, tensor records, then the tensors' bytes, each aligned.
//
//   INVAR_ASSIGN(auto file, GgufFile::open(posix_files(), "model.gguf", {}, 0));
//
// Versions 2 and 3, little-endian. Shapes are given row-major, as everywhere here (the file has them reversed). Tensors
// of plain numbers have their dtype; tensors in blocks are U8 rows of block bytes with TensorInfo::encoding "Q4_K".
// Metadata keeps single values as text; of a list, its length and type.
//
// Files come from strangers: counts are compared with the file's size before anything is reserved, strings with a
// limit and with what is left, shapes and offsets without overflow; tensors may not overlap nor leave the file.
//
// reasons, all with DATA_LOSS:
//   gguf.truncated  gguf.bad_magic  gguf.unsupported_version  gguf.count_too_large  gguf.string_too_long
//   gguf.bad_value  gguf.duplicate_key  gguf.duplicate_tensor  gguf.bad_alignment  gguf.unknown_type
//   gguf.bad_shape  gguf.size_overflow  gguf.bad_offset  gguf.tensor_out_of_range  gguf.overlap  gguf.missing_split
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/container/containers.h"
#include "core/container/weight_file.h"

namespace invar {

class GgufFile : public WeightFile {
 public:
  static Result<std::unique_ptr<WeightFile>> open(FileSystem& files, const std::string& path,
                                                  const ContainerLimits& limits, int file_index);

  std::string_view format() const override { return "gguf"; }
  const std::string& path() const override { return file_->path(); }
  int64_t size() const override { return file_->size(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }  // in the order of the records
  const StringMap& metadata() const override { return metadata_; }
  const std::vector<Finding>& findings() const override { return findings_; }
  Status read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const override;

 private:
  friend class GgufReader;
  std::unique_ptr<RandomAccessFile> file_;
  std::vector<TensorInfo> tensors_;
  StringMap metadata_;
  std::vector<Finding> findings_;
};

}  // namespace invar
