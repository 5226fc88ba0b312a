#include "core/base/file.h"

#include <atomic>

namespace invar {

Result<std::string> read_text(FileSystem& files, const std::string& path, int64_t max_bytes) {
  INVAR_ASSIGN(auto file, files.open(path));
  if (file->size() > max_bytes) {
    return Error(Code::kInvalidArgument, "file.too_large",
                 cat(path, ": ", file->size(), " bytes; at most ", max_bytes, " are read"));
  }
  std::string text(static_cast<size_t>(file->size()), '\0');
  INVAR_TRY(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status write_text_atomically(FileSystem& files, const std::string& path, std::string_view text) {
  const std::string beside = path + ".partial";
  INVAR_ASSIGN(auto file, files.create(beside));
  Status status = file->append(std::as_bytes(std::span(text)));
  if (status.ok()) status = file->close(/*durable=*/true);
  if (status.ok()) status = files.rename(beside, path);
  if (!status.ok()) (void)files.remove_all(beside).ok();
  return status;
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return cat(directory, directory.back() == '/' ? "" : "/", name);
}

std::string base_name(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const auto slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string parent_path(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

Result<StagedDirectory> StagedDirectory::create(FileSystem& files, const std::string& target) {
  if (files.exists(target)) {
    if (!files.is_directory(target)) {
      return Error(Code::kAlreadyExists, "output.not_a_folder",
                   cat(target, ": exists and is not a folder; choose another output"));
    }
    INVAR_ASSIGN(auto entries, files.list(target));
    if (!entries.empty()) {
      return Error(
          Code::kAlreadyExists, "output.not_empty",
          cat(target, ": output folder is not empty (it holds \"", entries.front().name, "\"); choose a new folder"));
    }
  }
  INVAR_TRY(files.make_directories(parent_path(target)));
  std::string trimmed = target;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  std::string staging = trimmed + ".partial";
  INVAR_TRY(files.remove_all(staging));  // what a killed run left
  INVAR_TRY(files.make_directories(staging));
  return StagedDirectory(files, trimmed, staging);
}

StagedDirectory::StagedDirectory(StagedDirectory&& other) noexcept
    : files_(other.files_), target_(std::move(other.target_)), staging_(std::exchange(other.staging_, {})) {}

StagedDirectory::~StagedDirectory() {
  if (!staging_.empty()) (void)files_->remove_all(staging_).ok();
}

Status StagedDirectory::commit() {
  INVAR_TRY(files_->sync_directory(staging_));
  if (files_->exists(target_)) INVAR_TRY(files_->remove_all(target_));  // empty: create() made sure
  INVAR_TRY(files_->rename(staging_, target_));
  staging_.clear();
  return files_->sync_directory(parent_path(target_));
}

}  // namespace invar
