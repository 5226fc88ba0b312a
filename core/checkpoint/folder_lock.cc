#include "core/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace invar {

Result<FolderLock> FolderLock::take(FileSystem& files, const std::string& folder) {
  if (&files != &posix_files()) return FolderLock("", -1);
  std::string path = folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  INVAR_TRY(files.make_directories(parent_path(path)));
  path += ".lock";
  for (;;) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0) {
      return Error(Code::kPermissionDenied, "file.open_failed",
                   cat(path, ": cannot be opened: ", std::strerror(errno)));
    }
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      const int reason = errno;
      ::close(descriptor);
      if (reason == EINTR) continue;
      return Error(Code::kAborted, "output.locked",
                   cat(folder, ": another run is writing this folder (it holds ", path, "); wait for it or choose ",
                       "another folder"));
    }
    // The holder before removed the file on its way out: what is locked here may no longer be what others open.
    struct stat held, named;
    if (::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
        held.st_dev == named.st_dev) {
      return FolderLock(path, descriptor);
    }
    ::close(descriptor);
  }
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() {
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());  // while it is still held
  ::close(descriptor_);
}

}  // namespace invar
