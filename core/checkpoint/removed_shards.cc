#include "core/checkpoint/removed_shards.h"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace invar {

// An open file of the source. Without `file` it is gone, and `head` is what is left.
struct RemovedShards::Handle {
  std::mutex mutex;
  std::shared_ptr<RandomAccessFile> file;
  std::string head;
};

namespace {

constexpr std::string_view kHead = ".head";
constexpr int64_t kMaxHeadBytes = 256'000'000;

class ShardFile : public RandomAccessFile {
 public:
  ShardFile(std::string path, int64_t size, int64_t modified_time, std::shared_ptr<RemovedShards::Handle> handle)
      : path_(std::move(path)), size_(size), modified_time_(modified_time), handle_(std::move(handle)) {}

  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  int64_t modified_time() const override { return modified_time_; }
  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    std::shared_ptr<RandomAccessFile> file;
    {
      std::lock_guard lock(handle_->mutex);
      file = handle_->file;
    }
    if (file) return file->read_at(offset, out);
    const std::string& head = handle_->head;
    const auto end = static_cast<int64_t>(head.size());
    if (offset < 0 || offset > end || static_cast<int64_t>(out.size()) > end - offset) {
      return Error(Code::kFailedPrecondition, "convert.source_removed",
                   cat(path_, ": was removed by a conversion in place, whose result holds its tensors; bytes from ",
                       offset, " on are gone"));
    }
    if (!out.empty()) std::memcpy(out.data(), head.data() + offset, out.size());
    return {};
  }

 private:
  std::string path_;
  int64_t size_, modified_time_;
  std::shared_ptr<RemovedShards::Handle> handle_;
};

Status unsupported(const std::string& path, std::string_view why) {
  return Error(Code::kInvalidArgument, "convert.in_place_unsupported",
               cat("remove_source: ", path, why, "; convert to another folder and remove the source afterwards"));
}

}  // namespace

Result<std::unique_ptr<RemovedShards>> RemovedShards::open(FileSystem& files, const std::string& source,
                                                           const std::string& journal) {
  std::string folder = source;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  std::unique_ptr<RemovedShards> shards(new RemovedShards(files, folder, journal));
  if (!files.exists(journal)) return shards;
  INVAR_ASSIGN(const auto entries, files.list(journal));
  for (const DirEntry& entry : entries) {
    if (!entry.name.ends_with(kHead)) continue;
    const std::string path = join_path(journal, entry.name);
    INVAR_ASSIGN(const std::string text, read_text(files, path, kMaxHeadBytes));
    Head head;
    if (text.size() < 16) return Error(Code::kDataLoss, "convert.bad_journal", cat(path, ": is cut short"));
    std::memcpy(&head.size, text.data(), 8);
    std::memcpy(&head.modified_time, text.data() + 8, 8);
    head.bytes = text.substr(16);
    shards->heads_[entry.name.substr(0, entry.name.size() - kHead.size())] = std::move(head);
  }
  return shards;
}

Status RemovedShards::remember(const CheckpointFolder& folder) {
  if (folder.format() != "safetensors" || folder.is_single_file()) {
    return unsupported(folder.path(), ": is not a folder of safetensors files");
  }
  INVAR_ASSIGN(const auto entries, below_.list(source_));
  const bool indexed = std::any_of(entries.begin(), entries.end(),
                                   [](const DirEntry& entry) { return entry.name.ends_with(".index.json"); });
  if (folder.files().size() > 1 && !indexed) {
    return unsupported(folder.path(), ": has no index, so that nobody could see which files are gone");
  }
  for (const auto& file : folder.files()) {
    const std::string name = base_name(file->path());
    const auto entry = std::find_if(entries.begin(), entries.end(), [&](const DirEntry& e) { return e.name == name; });
    if (entry == entries.end() && heads_.count(name) != 0) continue;  // removed by an earlier run
    if (entry == entries.end() || parent_path(file->path()) != source_) {
      return unsupported(file->path(), ": lies in a folder of its own");
    }
    if (entry->is_symlink) return unsupported(file->path(), ": is a link, and removing it frees no space");
    INVAR_ASSIGN(const auto opened, below_.open(file->path()));
    uint64_t header = 0;
    INVAR_TRY(opened->read_at(0, std::as_writable_bytes(std::span(&header, 1))));
    Head head{opened->size(), opened->modified_time(), std::string(static_cast<size_t>(8 + header), '\0')};
    INVAR_TRY(opened->read_at(0, std::as_writable_bytes(std::span(head.bytes))));
    std::string text(16, '\0');
    std::memcpy(text.data(), &head.size, 8);
    std::memcpy(text.data() + 8, &head.modified_time, 8);
    INVAR_TRY(write_text_atomically(below_, join_path(journal_, cat(name, kHead)), text + head.bytes));
    heads_[name] = std::move(head);
  }
  return {};
}

Status RemovedShards::remove(const std::string& path) {
  if (!below_.exists(path)) return {};
  if (parent_path(path) != source_ || heads_.count(base_name(path)) == 0) {
    return Error(Code::kInternal, "convert.source_unknown", cat(path, ": is no file that may be removed"));
  }
  INVAR_TRY(below_.remove_all(path));
  const std::string name = base_name(path);
  for (const auto& weak : handles_[name]) {
    const auto handle = weak.lock();
    if (!handle) continue;
    std::lock_guard lock(handle->mutex);
    handle->head = heads_[name].bytes;
    handle->file = nullptr;
  }
  return {};
}

int64_t RemovedShards::removed() const {
  return std::count_if(heads_.begin(), heads_.end(),
                       [this](const auto& head) { return !below_.exists(join_path(source_, head.first)); });
}

const RemovedShards::Head* RemovedShards::head_of_removed(const std::string& path) const {
  if (heads_.empty() || parent_path(path) != source_) return nullptr;
  const auto head = heads_.find(base_name(path));
  return head == heads_.end() || below_.exists(path) ? nullptr : &head->second;
}

Result<std::unique_ptr<RandomAccessFile>> RemovedShards::open(const std::string& path) {
  if (parent_path(path) != source_) return below_.open(path);
  auto handle = std::make_shared<Handle>();
  int64_t size, modified_time;
  if (const Head* head = head_of_removed(path)) {
    handle->head = head->bytes;
    size = head->size, modified_time = head->modified_time;
  } else {
    INVAR_ASSIGN(handle->file, below_.open(path));
    size = handle->file->size(), modified_time = handle->file->modified_time();
  }
  handles_[base_name(path)].push_back(handle);
  return std::unique_ptr<RandomAccessFile>(new ShardFile(path, size, modified_time, std::move(handle)));
}

Result<std::vector<DirEntry>> RemovedShards::list(const std::string& directory) {
  INVAR_ASSIGN(auto entries, below_.list(directory));
  std::string folder = directory;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (folder != source_) return entries;
  for (const auto& [name, head] : heads_) {
    if (head_of_removed(join_path(source_, name)) != nullptr) entries.push_back({name, false, false});
  }
  std::sort(entries.begin(), entries.end(), [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
  return entries;
}

bool RemovedShards::exists(const std::string& path) { return below_.exists(path) || head_of_removed(path) != nullptr; }

}  // namespace invar
