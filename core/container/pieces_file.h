// A container whose tensors are views, or are put together from pieces, of one or several files.
//
//   auto file = std::make_unique<PiecesFile>("torch", path, limits, file_index);
//   file->add_part(archive);
//   INVAR_TRY(file->add({"w", DType::kF32, {3, 2}}, boxes));
//   INVAR_TRY(file->finish());
//
// Role: the WeightFile of torch zip files, DCP and DeepSpeed folders. Invariant after finish(): tensors are sorted by
// name and unique, and what they hold together is in proportion to the files (views may repeat bytes: a file of some
// kilobytes must not stand for terabytes).
// reasons, after the format's name: FORMAT.bad_tensor  FORMAT.duplicate_tensor  FORMAT.no_tensors  FORMAT.expands
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/container/stored_boxes.h"
#include "core/container/weight_file.h"

namespace invar {

class PiecesFile : public WeightFile {
 public:
  PiecesFile(std::string_view format, std::string path, const ContainerLimits& limits, int file_index)
      : format_(format), path_(std::move(path)), limits_(limits), file_index_(file_index) {}

  // Of dtype and shape as a reader of the tensor sees them; boxes are in stored units of bytes_of(dtype, 1): elements,
  // or bytes for formats of several elements a byte.
  Status add(TensorSpec spec, std::vector<StoredBox> boxes) { return add(std::move(spec), std::move(boxes), false); }
  // The pieces are runs of the tensor seen as one row of elements.
  Status add_flat(TensorSpec spec, std::vector<StoredBox> runs) { return add(std::move(spec), std::move(runs), true); }
  void add_part(const std::shared_ptr<const RandomAccessFile>& file);
  void find(std::string_view what, std::string message) { findings_.push_back({reason(what), std::move(message)}); }
  Status finish();

  std::string_view format() const override { return format_; }
  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  std::vector<std::string> parts() const override { return parts_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const StringMap& metadata() const override { return metadata_; }
  const std::vector<Finding>& findings() const override { return findings_; }
  Status read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const override;

 private:
  Status add(TensorSpec spec, std::vector<StoredBox> boxes, bool flat);
  std::string reason(std::string_view what) const { return cat(format_, ".", what); }

  std::string_view format_;
  std::string path_;
  ContainerLimits limits_;
  int file_index_;
  int64_t size_ = 0;
  std::vector<std::string> parts_;
  std::vector<TensorInfo> tensors_;
  std::vector<StoredBoxes> boxes_;  // of tensors_
  StringMap metadata_;
  std::vector<Finding> findings_;
};

}  // namespace invar
