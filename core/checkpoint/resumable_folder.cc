#include "core/checkpoint/resumable_folder.h"

#include <utility>

namespace invar {
namespace {

constexpr std::string_view kDone = ".done", kFingerprint = "fingerprint", kOnlyCopy = "only_copy";
constexpr int64_t kMaxRecordBytes = int64_t{1} << 30;

std::string beside(const std::string& target, std::string_view ending) {
  std::string trimmed = target;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  return trimmed.append(ending);
}

}  // namespace

std::string ResumableFolder::staging_of(const std::string& target) { return beside(target, ".partial"); }
std::string ResumableFolder::journal_of(const std::string& target) { return beside(target, ".journal"); }

Status ResumableFolder::discard_stale_journal(FileSystem& files, const std::string& target) {
  return files.exists(staging_of(target)) ? Status() : files.remove_all(journal_of(target));
}

Result<ResumableFolder> ResumableFolder::open(FileSystem& files, const std::string& target,
                                              const std::string& fingerprint, bool resume) {
  if (files.exists(target)) {
    if (!files.is_directory(target)) {
      return Error(Code::kAlreadyExists, "output.not_a_folder",
                   cat(target, ": exists and is not a folder; choose another output"));
    }
    INVAR_ASSIGN(const auto entries, files.list(target));
    if (!entries.empty()) {
      return Error(
          Code::kAlreadyExists, "output.not_empty",
          cat(target, ": output folder is not empty (it holds \"", entries.front().name, "\"); choose a new folder"));
    }
  }
  INVAR_TRY(files.make_directories(parent_path(target)));
  ResumableFolder folder(files, target, staging_of(target));
  INVAR_TRY(discard_stale_journal(files, target));
  bool taken_over = false;
  if (resume) INVAR_TRY(folder.take_over(fingerprint, &taken_over));
  if (taken_over) return folder;
  if (files.exists(join_path(journal_of(target), kOnlyCopy))) {
    folder.keep();
    return Error(Code::kFailedPrecondition, "output.only_copy",
                 cat(folder.staging_,
                     ": holds the only copy of tensors whose source files were removed; run the same "
                     "conversion again, which finishes it, or move that folder away"));
  }
  INVAR_TRY(files.remove_all(folder.staging_));
  INVAR_TRY(files.remove_all(journal_of(target)));
  INVAR_TRY(files.make_directories(folder.staging_));
  INVAR_TRY(files.make_directories(journal_of(target)));
  INVAR_TRY(write_text_atomically(files, join_path(journal_of(target), kFingerprint), fingerprint));
  return folder;
}

Status ResumableFolder::take_over(const std::string& fingerprint, bool* done) {
  const std::string journal = journal_of(target_), first = join_path(journal, kFingerprint);
  if (!files_->exists(first)) return {};
  INVAR_ASSIGN(const std::string before, read_text(*files_, first, kMaxRecordBytes));
  if (before != fingerprint) return {};
  INVAR_ASSIGN(const auto entries, files_->list(journal));
  for (const DirEntry& entry : entries) {
    if (!entry.name.ends_with(kDone)) continue;
    INVAR_ASSIGN(std::string record, read_text(*files_, join_path(journal, entry.name), kMaxRecordBytes));
    const std::string file = entry.name.substr(0, entry.name.size() - kDone.size());
    if (files_->exists(join_path(staging_, file))) finished_[file] = std::move(record);
  }
  if (files_->exists(join_path(journal, kOnlyCopy))) keep();
  *done = true;
  return {};
}

ResumableFolder::ResumableFolder(ResumableFolder&& other) noexcept
    : files_(other.files_),
      target_(std::move(other.target_)),
      staging_(std::exchange(other.staging_, {})),
      finished_(std::move(other.finished_)),
      keep_(other.keep_) {}

ResumableFolder::~ResumableFolder() {
  if (staging_.empty() || keep_) return;
  (void)files_->remove_all(staging_).ok();
  (void)files_->remove_all(journal_of(target_)).ok();
}

const std::string* ResumableFolder::finished(const std::string& file) const {
  const auto it = finished_.find(file);
  return it == finished_.end() ? nullptr : &it->second;
}

Status ResumableFolder::record(const std::string& file, const std::string& bytes) {
  return write_text_atomically(*files_, join_path(journal_of(target_), cat(file, kDone)), bytes);
}

Status ResumableFolder::keep_at_all_costs() {
  keep();
  const std::string journal = journal_of(target_);
  INVAR_TRY(write_text_atomically(*files_, join_path(journal, kOnlyCopy), ""));
  INVAR_TRY(files_->sync_directory(journal));
  return files_->sync_directory(staging_);
}

Status ResumableFolder::commit() {
  INVAR_TRY(files_->sync_directory(staging_));
  if (files_->exists(target_)) INVAR_TRY(files_->remove_all(target_));  // empty: open() made sure
  INVAR_TRY(files_->rename(staging_, target_));
  staging_.clear();
  Status synced = files_->sync_directory(parent_path(target_));
  Status removed = files_->remove_all(journal_of(target_));
  return synced.ok() ? removed : synced;
}

}  // namespace invar
