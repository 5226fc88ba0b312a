// A learner's state in the native training checkpoint: a Hugging Face folder of the working weights that other tools
// load, and training/ with masters, moments and the run's progress. Thread rule: one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/side_files.h"
#include "core/checkpoint/training_state.h"
#include "core/train/learner.h"
#include "core/train/progress.h"
#include "proto/invar/v1/train.pb.h"

namespace invar {

// Everything to be saved, with pointers into the learner: valid until its next step.
// side_files: beside the weights, the tokenizer's.
Result<TrainingSnapshot> snapshot_of(const Learner& learner, const Progress& progress, const v1::TrainConfig& config,
                                     std::vector<SideFile> side_files);

struct RestoredRun {
  Progress progress;
  v1::TrainConfig config;  // of the run that wrote the checkpoint
};
// Fills the learner's masters, moments and step count from `folder`. "checkpoint.shape_mismatch" names the first
// parameter that differs; the learner is then as it was. After any other failure, or cancelled, it is of no use.
Result<RestoredRun> restore_checkpoint(FileSystem& files, const std::string& folder, Learner* learner,
                                       const CancelFlag* cancel);

}  // namespace invar
