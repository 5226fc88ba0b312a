// Only one run writes a folder at a time: a lock file "<folder>.lock" beside it, held by the operating system for as
// long as the process lives, so that a killed run leaves nothing that has to be cleared.
//
//   INVAR_ASSIGN(const FolderLock lock, FolderLock::take(files, "model-bf16"));      // output.locked when another has
//   it
//
// Invariant: held from take() to destruction; two in one process exclude each other as well. File systems of a host
// (anything but posix_files()) are theirs to lock: take() then holds nothing. Thread rule: value, no sharing.
#pragma once

#include <string>

#include "core/base/file.h"

namespace invar {

class FolderLock {
 public:
  static Result<FolderLock> take(FileSystem& files, const std::string& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  FolderLock(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  std::string path_;
  int descriptor_;  // -1: nothing held
};

}  // namespace invar
