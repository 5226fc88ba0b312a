// The operating system's files: pread and pwrite, every error with path and reason.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/file.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

Code code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return Code::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS: return Code::kPermissionDenied;
    case EEXIST:
    case ENOTEMPTY: return Code::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM: return Code::kResourceExhausted;
    default: return Code::kUnavailable;
  }
}

std::string_view reason_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return "file.not_found";
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return "file.no_space";
    case EACCES:
    case EPERM:
    case EROFS: return "file.permission_denied";
    default: return "file.io";
  }
}

Status system_error(const std::string& path, std::string_view action, int error) {
  return Error(code_of(error), reason_of(error),
               cat(path, ": cannot ", action, ": ", std::generic_category().message(error)));
}

class PosixReader : public RandomAccessFile {
 public:
  PosixReader(std::string path, int fd, const struct stat& info)
      : path_(std::move(path)),
        fd_(fd),
        size_(info.st_size),
        modified_time_(int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec) {}
  ~PosixReader() override { ::close(fd_); }
  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  int64_t modified_time() const override { return modified_time_; }

  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, offset + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error(path_, "read", errno);
      if (n == 0) {
        return Error(Code::kDataLoss, "file.short_read",
                     cat(path_, ": wanted ", out.size(), " bytes at byte ", offset, ", the file ended after ", done));
      }
      done += static_cast<size_t>(n);
    }
    return {};
  }

 private:
  std::string path_;
  int fd_;
  int64_t size_, modified_time_;
};

class PosixWriter : public WritableFile {
 public:
  PosixWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixWriter() override {
    if (fd_ >= 0) ::close(fd_);
  }
  const std::string& path() const override { return path_; }

  Status append(std::span<const std::byte> bytes) override {
    INVAR_TRY(write_at(end_, bytes));
    end_ += static_cast<int64_t>(bytes.size());
    return {};
  }

  Status write_at(int64_t offset, std::span<const std::byte> bytes) override {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error(path_, "write", errno);
      done += static_cast<size_t>(n);
    }
    return {};
  }

  Status reserve(int64_t size) override {
    if (size <= 0) return {};
    const int error = ::posix_fallocate(fd_, 0, size);
    if (error == ENOSPC || error == EFBIG || error == EDQUOT) {
      return system_error(path_, cat("reserve ", size, " bytes"), error);
    }
    return {};
  }

  Status close(bool durable) override {
    const int fd = std::exchange(fd_, -1);
    if (fd < 0) return Error(Code::kFailedPrecondition, "file.closed", cat(path_, ": is closed already"));
    const int sync_error = durable && ::fsync(fd) != 0 ? errno : 0;
    const int close_error = ::close(fd) != 0 ? errno : 0;
    if (sync_error != 0 && sync_error != EINVAL) return system_error(path_, "sync", sync_error);
    if (close_error != 0) return system_error(path_, "close", close_error);
    return {};
  }

 private:
  std::string path_;
  int fd_;
  int64_t end_ = 0;
};

// A descriptor of a regular file. Pipes and devices are refused, and without O_NONBLOCK the opening of a pipe would
// wait for its other end; regular files do not know the flag.
Result<int> open_regular(const std::string& path, int flags, std::string_view doing, struct stat* info) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) return system_error(path, doing, errno);
  if (::fstat(fd, info) != 0) {
    const int error = errno;
    ::close(fd);
    return system_error(path, doing, error);
  }
  if (!S_ISREG(info->st_mode)) {
    ::close(fd);
    return Error(Code::kInvalidArgument, "file.not_regular", cat(path, ": is not a regular file"));
  }
  return fd;
}

class PosixFiles : public FileSystem {
 public:
  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path) override {
    struct stat info;
    INVAR_ASSIGN(const int fd, open_regular(path, O_RDONLY, "open", &info));
    return std::unique_ptr<RandomAccessFile>(std::make_unique<PosixReader>(path, fd, info));
  }

  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    struct stat info;
    INVAR_ASSIGN(const int fd, open_regular(path, O_WRONLY | O_CREAT | O_TRUNC, "create", &info));
    return std::unique_ptr<WritableFile>(std::make_unique<PosixWriter>(path, fd));
  }

  Result<std::vector<DirEntry>> list(const std::string& directory) override {
    std::error_code error;
    std::vector<DirEntry> entries;
    fs::directory_iterator it(directory, error), end;
    for (; !error && it != end; it.increment(error)) {
      std::error_code ignored;
      entries.push_back({it->path().filename().string(), it->is_directory(ignored), it->is_symlink(ignored)});
    }
    if (error) return system_error(directory, "list", error.value());
    std::sort(entries.begin(), entries.end(), [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
    return entries;
  }

  bool exists(const std::string& path) override {
    std::error_code ignored;
    return fs::exists(path, ignored);
  }

  bool is_directory(const std::string& path) override {
    std::error_code ignored;
    return fs::is_directory(path, ignored);
  }

  Status make_directories(const std::string& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    return error ? system_error(path, "create folder", error.value()) : Status();
  }

  Status rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? Status()
                                                   : system_error(to, cat("rename \"", from, "\" to it"), errno);
  }

  Status remove_all(const std::string& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    return error ? system_error(path, "remove", error.value()) : Status();
  }

  Status sync_directory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return system_error(path, "open", errno);
    const int error = ::fsync(fd) != 0 ? errno : 0;
    ::close(fd);
    return error == 0 || error == EINVAL ? Status() : system_error(path, "sync", error);
  }

  Result<std::string> canonical(const std::string& path) override {
    std::error_code error;
    const fs::path resolved = fs::canonical(path, error);
    if (error) return system_error(path, "resolve", error.value());
    return resolved.string();
  }
};

}  // namespace

FileSystem& posix_files() {
  static PosixFiles files;
  return files;
}

}  // namespace invar
