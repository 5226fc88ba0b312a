#include "core/container/file_parts.h"

namespace invar {
namespace {

class SliceFile : public RandomAccessFile {
 public:
  SliceFile(std::shared_ptr<const RandomAccessFile> file, int64_t begin, int64_t size)
      : file_(std::move(file)), begin_(begin), size_(size) {}
  const std::string& path() const override { return file_->path(); }
  int64_t size() const override { return size_; }
  int64_t modified_time() const override { return file_->modified_time(); }

  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || offset > size_ || static_cast<int64_t>(out.size()) > size_ - offset) {
      return Error(Code::kDataLoss, "file.short_read",
                   cat(path(), ": wanted ", out.size(), " bytes at byte ", offset, " of a part of ", size_));
    }
    return file_->read_at(begin_ + offset, out);
  }

 private:
  std::shared_ptr<const RandomAccessFile> file_;
  int64_t begin_, size_;
};

class FileOnDemand : public RandomAccessFile {
 public:
  FileOnDemand(FileSystem& files, const RandomAccessFile& seen)
      : files_(files), path_(seen.path()), size_(seen.size()), modified_time_(seen.modified_time()) {}
  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  int64_t modified_time() const override { return modified_time_; }

  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    INVAR_ASSIGN(const auto file, files_.open(path_));
    if (file->size() != size_ || file->modified_time() != modified_time_) {
      return Error(Code::kAborted, "file.changed", cat(path_, ": changed while it was read"));
    }
    return file->read_at(offset, out);
  }

 private:
  FileSystem& files_;
  std::string path_;
  int64_t size_, modified_time_;
};

}  // namespace

std::shared_ptr<const RandomAccessFile> slice_of(std::shared_ptr<const RandomAccessFile> file, int64_t begin,
                                                 int64_t size) {
  return std::make_shared<SliceFile>(std::move(file), begin, size);
}

Result<std::shared_ptr<const RandomAccessFile>> open_on_demand(FileSystem& files, const std::string& path) {
  INVAR_ASSIGN(const auto seen, files.open(path));
  return std::shared_ptr<const RandomAccessFile>(std::make_shared<FileOnDemand>(files, *seen));
}

}  // namespace invar
