// safetensors files: 8 bytes header length (little-endian), a JSON header, the tensors' bytes.
//
//   INVAR_ASSIGN(auto file, SafetensorsFile::open(posix_files(), "model.safetensors"));
//   const TensorInfo* weight = file.header().find("lm_head.weight");
//   INVAR_TRY(file.read(*weight, /*offset=*/0, bytes));
//
// Files come from strangers. The header is checked whole before anything is believed: it fits the file and the
// limits, names are unique UTF-8, dtypes known, sizes follow from shapes without overflow, and the tensors tile the
// data part exactly (no hole, no overlap, nothing behind). Every violation has its own reason (below); messages name
// the file and the tensor. Nothing is allocated from a length that was not compared with the file's size.
//
// reasons, all with DATA_LOSS:
//   safetensors.truncated         the file ends before its 8 bytes of length, or before a tensor's end
//   safetensors.header_too_large  the header is longer than the limit
//   safetensors.header_too_long   the header is longer than the file
//   safetensors.bad_header        not JSON, not UTF-8, not an object, or a record lacks a field or repeats one
//   safetensors.bad_metadata      __metadata__ is not a map of strings to strings
//   safetensors.duplicate_tensor  safetensors.too_many_tensors  safetensors.name_too_long
//   safetensors.unknown_dtype     safetensors.bad_shape         safetensors.size_overflow
//   safetensors.bad_offsets       not two plain integers in order
//   safetensors.size_mismatch     offsets and shape disagree
//   safetensors.hole  safetensors.overlap  safetensors.trailing_data
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/container/weight_file.h"

namespace invar {

using SafetensorsLimits = ContainerLimits;

// The checked header of one file. A value; safe to share once built.
class SafetensorsHeader {
 public:
  // Reads the header only. `file_index` is stored in every TensorInfo.
  static Result<SafetensorsHeader> read(const RandomAccessFile& file, const SafetensorsLimits& limits = {},
                                        int file_index = 0);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of their bytes
  const StringMap& metadata() const { return metadata_; }
  int64_t data_begin() const { return data_begin_; }
  const TensorInfo* find(std::string_view name) const;  // null when absent

 private:
  friend class SafetensorsHeaderReader;
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> by_name_;  // indices into tensors_
  StringMap metadata_;
  int64_t data_begin_ = 0;
};

// An open file with its header. Thread rule: read() from any number of threads.
class SafetensorsFile : public WeightFile {
 public:
  static Result<SafetensorsFile> open(FileSystem& files, const std::string& path, const SafetensorsLimits& limits = {},
                                      int file_index = 0);

  std::string_view format() const override { return "safetensors"; }
  const std::string& path() const override { return file_->path(); }
  int64_t size() const override { return file_->size(); }
  const SafetensorsHeader& header() const { return header_; }
  const std::vector<TensorInfo>& tensors() const override { return header_.tensors(); }
  const StringMap& metadata() const override { return header_.metadata(); }
  const std::vector<Finding>& findings() const override { return findings_; }
  Status read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const override;

 private:
  SafetensorsFile(std::unique_ptr<RandomAccessFile> file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}
  std::unique_ptr<RandomAccessFile> file_;
  SafetensorsHeader header_;
  std::vector<Finding> findings_;  // none: what is odd is an error
};

}  // namespace invar
