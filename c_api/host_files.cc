#include "c_api/internal/host_files.h"

#include <algorithm>

namespace invar::abi {

namespace {

struct Host {
  HostFileFunctions functions;
  std::shared_ptr<Dropper> dropper;

  bool owns(const std::string& path) const { return path.starts_with(functions.prefix); }
};

// The host's code, or INTERNAL for what it threw.
template <typename Function>
Status call_host(std::string_view operation, const std::string& path, Function&& function) {
  int32_t code;
  try {
    code = function();
  } catch (...) {
    return Error(Code::kInternal, "callback.exception", cat(path, ": the host's ", operation, " let an exception out"));
  }
  if (code == INVAR_OK) return {};
  const bool canonical = code > 0 && code <= INVAR_UNAUTHENTICATED;
  return Error(canonical ? static_cast<Code>(code) : Code::kUnknown,
               code == INVAR_NOT_FOUND ? "file.not_found" : "file.host_failed",
               cat(path, ": the host's ", operation, " returned ", canonical ? invar_code_name(code) : cat(code)));
}

class HostFile : public RandomAccessFile {
 public:
  HostFile(std::shared_ptr<const Host> host, std::string path, int64_t size)
      : host_(std::move(host)), path_(std::move(path)), size_(size) {}
  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || offset > size_ || out.size() > static_cast<size_t>(size_ - offset)) {
      return Error(Code::kDataLoss, "file.short_read",
                   cat(path_, ": ", out.size(), " bytes at ", offset, " wanted, the file has ", size_));
    }
    if (out.empty()) return {};
    return call_host("read_at", path_, [&] {
      return host_->functions.read_at(host_->functions.user, path_.c_str(), offset, out.data(), out.size());
    });
  }

 private:
  std::shared_ptr<const Host> host_;
  std::string path_;
  int64_t size_;
};

class HostFiles : public FileSystem {
 public:
  explicit HostFiles(Host host) : host_(std::make_shared<const Host>(std::move(host))) {}

  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path) override {
    if (!host_->owns(path)) return posix_files().open(path);
    INVAR_ASSIGN(const int64_t size, size_of(path));
    return std::unique_ptr<RandomAccessFile>(new HostFile(host_, path, size));
  }
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    INVAR_TRY(writable(path));
    return posix_files().create(path);
  }
  Result<std::vector<DirEntry>> list(const std::string& directory) override {
    if (!host_->owns(directory)) return posix_files().list(directory);
    struct List {
      std::vector<DirEntry> entries;
      bool failed = false;
    } list;
    const auto add = [](void* to, const char* name) {
      auto* into = static_cast<List*>(to);
      try {
        if (name != nullptr) into->entries.push_back({name, false, false});
      } catch (...) {
        into->failed = true;
      }
    };
    INVAR_TRY(call_host("list", directory,
                        [&] { return host_->functions.list(host_->functions.user, directory.c_str(), add, &list); }));
    if (list.failed) return Error(Code::kResourceExhausted, "memory.exhausted", "out of memory");
    std::sort(list.entries.begin(), list.entries.end(),
              [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
    return std::move(list.entries);
  }
  bool exists(const std::string& path) override {
    if (!host_->owns(path)) return posix_files().exists(path);
    return size_of(path).ok() || is_directory(path);
  }
  bool is_directory(const std::string& path) override {
    if (!host_->owns(path)) return posix_files().is_directory(path);
    return list(path).ok();
  }
  Status make_directories(const std::string& path) override {
    INVAR_TRY(writable(path));
    return posix_files().make_directories(path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    INVAR_TRY(writable(from));
    INVAR_TRY(writable(to));
    return posix_files().rename(from, to);
  }
  Status remove_all(const std::string& path) override {
    INVAR_TRY(writable(path));
    return posix_files().remove_all(path);
  }
  Status sync_directory(const std::string& path) override {
    INVAR_TRY(writable(path));
    return posix_files().sync_directory(path);
  }
  Result<std::string> canonical(const std::string& path) override {
    if (!host_->owns(path)) return posix_files().canonical(path);
    return path;
  }

 private:
  Result<int64_t> size_of(const std::string& path) {
    int64_t size = -1;
    INVAR_TRY(call_host("file_size", path,
                        [&] { return host_->functions.size(host_->functions.user, path.c_str(), &size); }));
    if (size < 0) return Error(Code::kInternal, "file.host_failed", cat(path, ": the host gave the size ", size));
    return size;
  }
  Status writable(const std::string& path) const {
    if (!host_->owns(path)) return {};
    return Error(Code::kInvalidArgument, "file.read_only",
                 cat(path, ": files under ", host_->functions.prefix, " can only be read: write to another path"));
  }

  std::shared_ptr<const Host> host_;
};

}  // namespace

std::unique_ptr<FileSystem> make_host_files(HostFileFunctions functions, std::shared_ptr<Dropper> dropper) {
  return std::make_unique<HostFiles>(Host{std::move(functions), std::move(dropper)});
}

}  // namespace invar::abi
