// A training checkpoint, or a learner in memory, written as a folder that other software serves.
// Thread rule: functions; the cancel flag may be set from anywhere.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"
#include "core/checkpoint/model_writer.h"
#include "core/train/learner.h"
#include "proto/invar/v1/checkpoint.pb.h"
#include "proto/invar/v1/report.pb.h"

namespace invar {

struct ExportEnvironment {
  FileSystem* files = nullptr;
  ThreadPool* pool = nullptr;  // null: the calling thread
  const CancelFlag* cancel = nullptr;
  // Elements written of all that will be, from any thread of the pool.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

// config.source: a training checkpoint or the folder of a run, whose newest checkpoint is taken. Everything is made
// from the FP32 masters. Configs are resolved: every default is filled in.
Result<v1::ExportReport> export_checkpoint(const v1::ExportConfig& config, const ExportEnvironment& environment);

// The weights as they are now; config.source is not read. side_files: beside the weights, the tokenizer's.
Result<v1::ExportReport> export_learner(const Learner& learner, std::vector<SideFile> side_files,
                                        const v1::ExportConfig& config, const ExportEnvironment& environment);

// "bf16", "fp8_block", ...: the name of a target in configs and folders.
std::string target_name(v1::TargetFormat target);

}  // namespace invar
