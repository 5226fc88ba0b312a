// What a Session holds; shared by session.cc (set-up and entry points) and session_run.cc (the loop).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/optim/schedule.h"
#include "core/precision/ladder.h"
#include "core/text/batch_source.h"
#include "core/train/checkpoint.h"
#include "core/train/export.h"
#include "core/train/learner.h"
#include "core/train/metrics_file.h"
#include "core/train/progress.h"
#include "core/train/run_folder.h"
#include "core/train/session.h"
#include "core/train/setup.h"

namespace invar {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start);

struct Session::State {
  v1::TrainConfig config;
  std::shared_ptr<ThreadPool> pool;
  FileSystem* files = nullptr;
  Logger log;

  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<Learner> learner;
  std::unique_ptr<PrecisionLadder> ladder;
  Schedule schedule;
  TrainingData data;
  std::optional<BatchSource> source;  // none: host-driven
  std::optional<RunFolder> folder;    // none: nothing is written
  std::optional<MetricsFile> metrics;

  Progress progress;
  std::string saved_path;  // of the newest checkpoint of this session, and when it was written
  int64_t saved_step = -1, saved_skipped = 0;
  int64_t resumed_from = 0;
  std::vector<std::string> warnings;
  Clock::time_point window_start;

  Status open_output(std::string* checkpoint);
  Status resume_from(const std::string& checkpoint, const CancelFlag* cancel);
  Result<v1::StepMetrics> finish_step(std::optional<double> lr = std::nullopt);
  Result<v1::EvalMetrics> evaluate(const CancelFlag* cancel);
  Result<std::string> save();
  Status save_to(const std::string& path);
  Result<TrainingSnapshot> snapshot();
  std::vector<SideFile> side_files() const;
  // Folders of config.checkpoint.exports under the output; their paths.
  Result<std::vector<std::string>> write_exports(const CancelFlag* cancel);
  v1::TrainReport report(bool cancelled) const;
};

}  // namespace invar
