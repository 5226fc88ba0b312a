#include "core/base/memory_files.h"

#include <algorithm>
#include <cstring>

namespace invar {

struct MemoryFiles::Blob {
  std::mutex mutex;
  std::string bytes;
};

namespace {

class MemoryReader : public RandomAccessFile {
 public:
  MemoryReader(std::string path, std::string bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}
  const std::string& path() const override { return path_; }
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }

  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || offset > size() || static_cast<int64_t>(out.size()) > size() - offset) {
      return Error(Code::kDataLoss, "file.short_read",
                   cat(path_, ": wanted ", out.size(), " bytes at byte ", offset, " of ", size()));
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

 private:
  std::string path_;
  std::string bytes_;
};

class MemoryWriter : public WritableFile {
 public:
  MemoryWriter(std::string path, std::shared_ptr<MemoryFiles::Blob> blob)
      : path_(std::move(path)), blob_(std::move(blob)) {}
  const std::string& path() const override { return path_; }

  Status append(std::span<const std::byte> bytes) override {
    INVAR_TRY(write_at(end_, bytes));
    end_ += static_cast<int64_t>(bytes.size());
    return {};
  }

  Status write_at(int64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(blob_->mutex);
    const size_t end = static_cast<size_t>(offset) + bytes.size();
    if (blob_->bytes.size() < end) blob_->bytes.resize(end);
    if (!bytes.empty()) std::memcpy(blob_->bytes.data() + offset, bytes.data(), bytes.size());
    return {};
  }

  Status reserve(int64_t size) override {
    const std::lock_guard lock(blob_->mutex);
    if (static_cast<int64_t>(blob_->bytes.size()) < size) blob_->bytes.resize(static_cast<size_t>(size));
    return {};
  }

  Status close(bool) override {
    if (std::exchange(closed_, true)) {
      return Error(Code::kFailedPrecondition, "file.closed", cat(path_, ": is closed already"));
    }
    return {};
  }

 private:
  std::string path_;
  std::shared_ptr<MemoryFiles::Blob> blob_;
  int64_t end_ = 0;
  bool closed_ = false;
};

std::string trimmed(const std::string& path) {
  std::string text = path;
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

bool is_below(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() && path.starts_with(folder) && (folder == "/" || path[folder.size()] == '/');
}

Status missing(const std::string& path) {
  return Error(Code::kNotFound, "file.not_found", cat(path, ": no such file or folder"));
}

}  // namespace

std::unique_ptr<RandomAccessFile> memory_file(std::string path, std::string bytes) {
  return std::make_unique<MemoryReader>(std::move(path), std::move(bytes));
}

MemoryFiles::MemoryFiles() {
  nodes_["/"] = nullptr;
  nodes_["."] = nullptr;
}
MemoryFiles::~MemoryFiles() = default;

Result<std::unique_ptr<RandomAccessFile>> MemoryFiles::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto it = nodes_.find(path);
  if (it == nodes_.end()) return missing(path);
  if (it->second == nullptr) {
    return Error(Code::kInvalidArgument, "file.not_regular", cat(path, ": is not a regular file"));
  }
  const std::lock_guard blob_lock(it->second->mutex);
  return memory_file(path, it->second->bytes);
}

Result<std::unique_ptr<WritableFile>> MemoryFiles::create(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto folder = nodes_.find(parent_path(path));
  if (folder == nodes_.end() || folder->second != nullptr) return missing(parent_path(path));
  const auto it = nodes_.find(path);
  if (it != nodes_.end() && it->second == nullptr) {
    return Error(Code::kUnavailable, "file.io", cat(path, ": is a folder"));
  }
  auto blob = std::make_shared<Blob>();
  nodes_[path] = blob;
  return std::unique_ptr<WritableFile>(std::make_unique<MemoryWriter>(path, std::move(blob)));
}

Result<std::vector<DirEntry>> MemoryFiles::list(const std::string& directory) {
  const std::lock_guard lock(mutex_);
  const std::string folder = trimmed(directory);
  const auto it = nodes_.find(folder);
  if (it == nodes_.end() || it->second != nullptr) return missing(directory);
  std::vector<DirEntry> entries;
  for (const auto& [path, blob] : nodes_) {
    if (path != folder && path != "/" && path != "." && parent_path(path) == folder) {
      entries.push_back({base_name(path), blob == nullptr, false});
    }
  }
  std::sort(entries.begin(), entries.end(), [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
  return entries;
}

bool MemoryFiles::exists(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return nodes_.contains(trimmed(path));
}

bool MemoryFiles::is_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto it = nodes_.find(trimmed(path));
  return it != nodes_.end() && it->second == nullptr;
}

Status MemoryFiles::make_directories(const std::string& path) {
  const std::lock_guard lock(mutex_);
  for (std::string folder = trimmed(path); folder != "/" && folder != "."; folder = parent_path(folder)) {
    const auto [it, added] = nodes_.try_emplace(folder, nullptr);
    if (!added && it->second != nullptr) {
      return Error(Code::kAlreadyExists, "file.io", cat(folder, ": exists and is not a folder"));
    }
  }
  return {};
}

Status MemoryFiles::rename(const std::string& from_path, const std::string& to_path) {
  const std::lock_guard lock(mutex_);
  const std::string from = trimmed(from_path), to = trimmed(to_path);
  const auto it = nodes_.find(from);
  if (it == nodes_.end()) return missing(from);
  if (it->second == nullptr) {
    for (const auto& [path, blob] : nodes_) {
      if (is_below(path, to) || (path == to && blob != nullptr)) {
        return Error(Code::kAlreadyExists, "file.io", cat(to, ": exists and is not an empty folder"));
      }
    }
  }
  std::map<std::string, std::shared_ptr<Blob>> moved;
  for (auto node = nodes_.begin(); node != nodes_.end();) {
    if (node->first == from || is_below(node->first, from)) {
      moved[to + node->first.substr(from.size())] = std::move(node->second);
      node = nodes_.erase(node);
    } else {
      ++node;
    }
  }
  for (auto& [path, blob] : moved) nodes_[path] = std::move(blob);
  return {};
}

Status MemoryFiles::remove_all(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const std::string root = trimmed(path);
  std::erase_if(nodes_, [&](const auto& node) { return node.first == root || is_below(node.first, root); });
  return {};
}

Status MemoryFiles::sync_directory(const std::string& path) { return is_directory(path) ? Status() : missing(path); }

Result<std::string> MemoryFiles::canonical(const std::string& path) {
  if (!exists(path)) return missing(path);
  return trimmed(path);
}

void MemoryFiles::put(const std::string& path, std::string bytes) {
  (void)make_directories(parent_path(path)).ok();
  const std::lock_guard lock(mutex_);
  auto blob = std::make_shared<Blob>();
  blob->bytes = std::move(bytes);
  nodes_[path] = std::move(blob);
}

std::map<std::string, std::string> MemoryFiles::snapshot() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::string> state;
  for (const auto& [path, blob] : nodes_) {
    if (path == "/" || path == ".") continue;
    if (blob == nullptr) {
      state[path + "/"];
    } else {
      const std::lock_guard blob_lock(blob->mutex);
      state[path] = blob->bytes;
    }
  }
  return state;
}

namespace {

class FaultyWriter : public WritableFile {
 public:
  FaultyWriter(FaultyFiles& owner, std::unique_ptr<WritableFile> below) : owner_(owner), below_(std::move(below)) {}
  const std::string& path() const override { return below_->path(); }

  Status append(std::span<const std::byte> bytes) override {
    const Status status = owner_.next();
    if (!status.ok()) (void)below_->append(bytes.first(bytes.size() / 2)).ok();
    return status.ok() ? below_->append(bytes) : status;
  }
  Status write_at(int64_t offset, std::span<const std::byte> bytes) override {
    const Status status = owner_.next();
    if (!status.ok()) (void)below_->write_at(offset, bytes.first(bytes.size() / 2)).ok();
    return status.ok() ? below_->write_at(offset, bytes) : status;
  }
  Status reserve(int64_t size) override {
    INVAR_TRY(owner_.next());
    return below_->reserve(size);
  }
  Status close(bool durable) override {
    INVAR_TRY(owner_.next());
    return below_->close(durable);
  }

 private:
  FaultyFiles& owner_;
  std::unique_ptr<WritableFile> below_;
};

}  // namespace

Status FaultyFiles::next() {
  const int64_t number = operations_.fetch_add(1);
  if (fail_at_ >= 0 && (number == fail_at_ || (stays_dead_ && number > fail_at_))) return status_;
  return {};
}

Result<std::unique_ptr<WritableFile>> FaultyFiles::create(const std::string& path) {
  INVAR_TRY(next());
  INVAR_ASSIGN(auto file, below_.create(path));
  return std::unique_ptr<WritableFile>(std::make_unique<FaultyWriter>(*this, std::move(file)));
}

Status FaultyFiles::make_directories(const std::string& path) {
  INVAR_TRY(next());
  return below_.make_directories(path);
}

Status FaultyFiles::rename(const std::string& from, const std::string& to) {
  INVAR_TRY(next());
  return below_.rename(from, to);
}

Status FaultyFiles::remove_all(const std::string& path) {
  INVAR_TRY(next());
  return below_.remove_all(path);
}

Status FaultyFiles::sync_directory(const std::string& path) {
  INVAR_TRY(next());
  return below_.sync_directory(path);
}

}  // namespace invar
