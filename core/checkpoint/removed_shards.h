// The source of an in-place conversion as it was: files that have been removed still show their headers.
//
//   INVAR_ASSIGN(auto source, RemovedShards::open(files, "model-fp8", ResumableFolder::journal_of("model-bf16")));
//   INVAR_ASSIGN(auto folder, CheckpointFolder::open(*source, "model-fp8"));   // also after some files are gone
//   INVAR_TRY(source->remember(folder));                                        // before the first is removed
//   INVAR_TRY(source->remove("model-fp8/model-00001-of-00002.safetensors"));
//
// The headers lie in the journal, one file each, with the size and time of the file they began. Reading beyond a header
// of a removed file is an error ("convert.source_removed"): whoever removes it has proved that nobody needs it. Files
// that are open while they are removed are let go of, so that the disk gets their space back.
// Thread rule: open files are read from any thread, everything else belongs to one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/container/checkpoint_folder.h"

namespace invar {

class RemovedShards : public FileSystem {
 public:
  static Result<std::unique_ptr<RemovedShards>> open(FileSystem& files, const std::string& source,
                                                     const std::string& journal);

  // "convert.in_place_unsupported" for anything but plain safetensors files with an index that names them.
  Status remember(const CheckpointFolder& folder);
  // A file that remember() has seen; nothing happens when it is gone already.
  Status remove(const std::string& path);
  int64_t removed() const;  // files that are gone

  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override { return below_.create(path); }
  Result<std::vector<DirEntry>> list(const std::string& directory) override;
  bool exists(const std::string& path) override;
  bool is_directory(const std::string& path) override { return below_.is_directory(path); }
  Status make_directories(const std::string& path) override { return below_.make_directories(path); }
  Status rename(const std::string& from, const std::string& to) override { return below_.rename(from, to); }
  Status remove_all(const std::string& path) override { return below_.remove_all(path); }
  Status sync_directory(const std::string& path) override { return below_.sync_directory(path); }
  Result<std::string> canonical(const std::string& path) override { return below_.canonical(path); }

  struct Head {
    int64_t size = 0, modified_time = 0;
    std::string bytes;
  };
  struct Handle;

 private:
  RemovedShards(FileSystem& files, std::string source, std::string journal)
      : below_(files), source_(std::move(source)), journal_(std::move(journal)) {}
  // Null when the file is there, or is none of the source's.
  const Head* head_of_removed(const std::string& path) const;

  FileSystem& below_;
  std::string source_, journal_;
  std::map<std::string, Head> heads_;                                  // by file name
  std::map<std::string, std::vector<std::weak_ptr<Handle>>> handles_;  // of open files, by file name
};

}  // namespace invar
