// File access behind one interface, so that tests and hosts can replace it.
//
// Rules: reads are positioned (`pread`), never a mapping of a file someone else can truncate;
// every error names the path and the system's reason. Paths are UTF-8 strings.
// Thread rule: a RandomAccessFile may be read from several threads at once; a WritableFile belongs to one,
// except write_at, which may be called from several threads for ranges that do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace invar {

class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  virtual const std::string& path() const = 0;
  virtual int64_t size() const = 0;
  // When the file was last changed, as of opening, in nanoseconds of the system's clock; 0 when nobody knows.
  virtual int64_t modified_time() const { return 0; }
  // Fills all of `out` from byte `offset`, or fails ("file.short_read" when the file ends before).
  virtual Status read_at(int64_t offset, std::span<std::byte> out) const = 0;
};

class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual const std::string& path() const = 0;
  virtual Status append(std::span<const std::byte> bytes) = 0;
  virtual Status write_at(int64_t offset, std::span<const std::byte> bytes) = 0;
  // Reserves `size` bytes so that a full disk fails early; a filesystem that cannot is not an error.
  virtual Status reserve(int64_t size) = 0;
  // Flushes to the device when `durable`, then closes. Must be called; the destructor only drops.
  virtual Status close(bool durable) = 0;
};

struct DirEntry {
  std::string name;
  bool is_directory = false;
  bool is_symlink = false;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path) = 0;
  virtual Result<std::unique_ptr<WritableFile>> create(const std::string& path) = 0;  // truncates
  virtual Result<std::vector<DirEntry>> list(const std::string& directory) = 0;       // sorted by name
  virtual bool exists(const std::string& path) = 0;
  virtual bool is_directory(const std::string& path) = 0;
  virtual Status make_directories(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove_all(const std::string& path) = 0;  // a missing path is ok
  virtual Status sync_directory(const std::string& path) = 0;
  // The path with symbolic links resolved.
  virtual Result<std::string> canonical(const std::string& path) = 0;
};

// The operating system's files. One instance for the process, without state.
FileSystem& posix_files();

// Helpers over any FileSystem.
Result<std::string> read_text(FileSystem& files, const std::string& path, int64_t max_bytes);
// Writes beside `path` and renames: readers see the old content or the new, never half of it.
Status write_text_atomically(FileSystem& files, const std::string& path, std::string_view text);
std::string join_path(std::string_view directory, std::string_view name);
std::string base_name(std::string_view path);
std::string parent_path(std::string_view path);

// A folder that appears under its final name only when complete: work in `path()`, then commit().
// Destroyed without commit, it removes what it wrote. `target` must not exist or be an empty folder
// ("output.not_empty" otherwise).
class StagedDirectory {
 public:
  static Result<StagedDirectory> create(FileSystem& files, const std::string& target);
  StagedDirectory(StagedDirectory&& other) noexcept;
  StagedDirectory& operator=(StagedDirectory&&) = delete;
  ~StagedDirectory();

  const std::string& path() const { return staging_; }
  Status commit();

 private:
  StagedDirectory(FileSystem& files, std::string target, std::string staging)
      : files_(&files), target_(std::move(target)), staging_(std::move(staging)) {}
  FileSystem* files_;
  std::string target_;
  std::string staging_;  // empty once committed or moved from
};

}  // namespace invar
