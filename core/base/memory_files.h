// File systems for tests and hosts that hold files themselves: one in memory, and one that fails on purpose.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/file.h"

namespace invar {

// A RandomAccessFile over bytes that it owns.
std::unique_ptr<RandomAccessFile> memory_file(std::string path, std::string bytes);

// A file system in memory. Folders exist once made; paths are taken literally (no "..", no links).
// Thread rule: any thread, except that bytes of one file may be written by several threads only through write_at
// to ranges that do not overlap, as for every WritableFile.
class MemoryFiles : public FileSystem {
 public:
  MemoryFiles();
  ~MemoryFiles() override;

  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override;
  Result<std::vector<DirEntry>> list(const std::string& directory) override;
  bool exists(const std::string& path) override;
  bool is_directory(const std::string& path) override;
  Status make_directories(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove_all(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::string> canonical(const std::string& path) override;

  // Sets a file's bytes, making its folders.
  void put(const std::string& path, std::string bytes);
  // Every path with the file's bytes; folders end in "/". For comparing whole states.
  std::map<std::string, std::string> snapshot() const;

  struct Blob;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Blob>> nodes_;  // null: a folder
};

// Passes everything on to `below`, and fails the mutating operation number `fail_at` (from 0; -1: none) with
// `status`. A failing write leaves half of its bytes. With `stays_dead` every later mutating operation fails too,
// as after a kill: not even clean-up runs.
class FaultyFiles : public FileSystem {
 public:
  FaultyFiles(FileSystem& below, int64_t fail_at, bool stays_dead,
              Status status = Error(Code::kResourceExhausted, "file.no_space", "no space left on device"))
      : below_(below), fail_at_(fail_at), stays_dead_(stays_dead), status_(std::move(status)) {}

  int64_t operations() const { return operations_.load(); }  // mutating operations so far

  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path) override { return below_.open(path); }
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override;
  Result<std::vector<DirEntry>> list(const std::string& directory) override { return below_.list(directory); }
  bool exists(const std::string& path) override { return below_.exists(path); }
  bool is_directory(const std::string& path) override { return below_.is_directory(path); }
  Status make_directories(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove_all(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::string> canonical(const std::string& path) override { return below_.canonical(path); }

  // Counts one operation: its Status when it must fail.
  Status next();

 private:
  FileSystem& below_;
  std::atomic<int64_t> operations_{0};
  int64_t fail_at_;
  bool stays_dead_;
  Status status_;
};

}  // namespace invar
