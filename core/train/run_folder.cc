#include "core/train/run_folder.h"

#include "core/checkpoint/training_state.h"

namespace invar {

Result<std::string> RunFolder::prepare(v1::ResumeMode resume) {
  if (files_->exists(path_) && !files_->is_directory(path_)) {
    return Error(Code::kAlreadyExists, "output.not_a_folder", cat(path_, ": exists and is not a folder"));
  }
  const bool may_resume = resume == v1::RESUME_MODE_AUTO || resume == v1::RESUME_MODE_ALWAYS;
  if (may_resume) {
    auto newest = newest_training_checkpoint(*files_, checkpoints_path());
    if (newest.ok()) return newest;
    if (resume == v1::RESUME_MODE_ALWAYS || newest.status().code() != Code::kNotFound) return newest.status();
  } else if (files_->exists(path_)) {
    INVAR_ASSIGN(const auto entries, files_->list(path_));
    if (!entries.empty()) {
      return Error(Code::kAlreadyExists, "output.not_empty",
                   cat(path_, ": output folder is not empty (it holds \"", entries.front().name,
                       "\"); choose a new folder, or resume=auto to continue the run in it"));
    }
  }
  INVAR_TRY(files_->make_directories(path_));
  return std::string();
}

Result<std::string> resolve_checkpoint(FileSystem& files, const std::string& path) {
  const std::string inside = RunFolder(files, path).checkpoints_path();
  return newest_training_checkpoint(files, files.is_directory(inside) ? inside : path);
}

}  // namespace invar
