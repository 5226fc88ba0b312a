// The folder of a run:
//
//   train_config.json           the resolved config
//   metrics.jsonl               one line a step or evaluation
//   checkpoints/step-00000300/  training checkpoints, each complete or absent
//   export/bf16/                serving folders
//
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <string_view>

#include "core/base/file.h"
#include "core/base/status.h"
#include "proto/invar/v1/train.pb.h"

namespace invar {

class RunFolder {
 public:
  RunFolder(FileSystem& files, std::string path) : files_(&files), path_(std::move(path)) {}

  // Makes the folder ready by `resume`: "output.not_empty" when a new run finds anything there,
  // "training.no_checkpoint" when resuming always finds none. Gives the checkpoint to continue from, or nothing.
  Result<std::string> prepare(v1::ResumeMode resume);

  const std::string& path() const { return path_; }
  std::string config_path() const { return join_path(path_, "train_config.json"); }
  std::string metrics_path() const { return join_path(path_, "metrics.jsonl"); }
  std::string checkpoints_path() const { return join_path(path_, "checkpoints"); }
  std::string export_path(std::string_view target) const { return join_path(join_path(path_, "export"), target); }

 private:
  FileSystem* files_;
  std::string path_;
};

// A training checkpoint: `path` itself, or the newest of the run whose folder (or checkpoints folder) `path` is.
Result<std::string> resolve_checkpoint(FileSystem& files, const std::string& path);

}  // namespace invar
