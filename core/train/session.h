// A training run: model, data, precision ladder, checkpoints and metrics under one roof.
//
//   INVAR_ASSIGN(auto session, Session::create(config, environment));
//   INVAR_ASSIGN(auto report, session->train(callbacks, &cancel));        // library-driven: to the last step
//
//   INVAR_TRY(session->begin_window(2));                                  // host-driven: the host brings the tokens
//   INVAR_TRY(session->forward_backward(batch).status());
//   INVAR_TRY(session->forward_backward(batch).status());
//   INVAR_ASSIGN(auto metrics, session->step());
//
// Invariant: the state after step k depends on the config and the data only: not on threads, evaluations, saves, or on
// whether the run was interrupted and resumed in between.
// Thread rule: one thread at a time; the cancel flag may be set from anywhere.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"
#include "core/device/device.h"
#include "core/model/model.h"
#include "core/text/tokenizer.h"
#include "proto/invar/v1/checkpoint.pb.h"
#include "proto/invar/v1/metrics.pb.h"
#include "proto/invar/v1/report.pb.h"
#include "proto/invar/v1/train.pb.h"

namespace invar {

// What the host lends a session; everything outlives it.
struct SessionEnvironment {
  std::shared_ptr<ThreadPool> pool;  // null: one of config.threads
  FileSystem* files = nullptr;       // null: the operating system's
  Logger log;
  DeviceAllocator allocator = {};         // empty: the process's own
  std::shared_ptr<void> keep_alive = {};  // what the allocator needs; released after the session's memory
};

// All optional. Called on the thread that trains.
struct TrainCallbacks {
  std::function<void(const v1::StepMetrics&)> on_step;
  std::function<void(const v1::EvalMetrics&)> on_eval;
  std::function<void(std::string_view path)> on_checkpoint;
};

class Session {
 public:
  // Checks the whole config and its files before any work, makes or loads the model, and resumes when the config says
  // so. Without data.paths the session is host-driven: train() and evaluate() are then FAILED_PRECONDITION. Without
  // output nothing is written: no metrics, no checkpoints. Cancelled: the output folder is as it was, or empty.
  static Result<std::unique_ptr<Session>> create(const v1::TrainConfig& config, const SessionEnvironment& environment,
                                                 const CancelFlag* cancel = nullptr);
  ~Session();

  // Runs to config.steps. Cancelled: saves a checkpoint (when there is an output), and the report says so.
  // A run that skips more than precision.max_skipped_steps steps in a row ends with "train.not_finite".
  Result<v1::TrainReport> train(const TrainCallbacks& callbacks, const CancelFlag* cancel);

  // What the session has done so far.
  v1::TrainReport report() const;

  // One step by hand. begin_window(0) opens a window of as many micro-batches as come before step(). The ladder
  // and the metrics file are the session's, and so is the learning rate unless `lr` (finite, >= 0) is given.
  Status begin_window(int64_t micro_batches);
  Result<LossSum> forward_backward(const MicroBatch& batch);
  Result<v1::StepMetrics> step(std::optional<double> lr = std::nullopt);

  // Mean token loss over the held-out text, or over the eval files.
  Result<v1::EvalMetrics> evaluate(const CancelFlag* cancel);
  // Of one batch of the host's own.
  Result<LossSum> evaluate_batch(const MicroBatch& batch, const TokenResults& results = {});

  // Writes a training checkpoint under the output folder; its path.
  Result<std::string> save();
  // Writes one to `folder`, which must not exist or be empty.
  Status save_to(const std::string& folder);
  // The weights as they are now, as a serving folder; config.source is not read. progress: elements written, of all;
  // from any thread of the pool.
  Result<v1::ExportReport> export_to(const v1::ExportConfig& config, const CancelFlag* cancel,
                                     const std::function<void(int64_t done, int64_t total)>& progress = {});
  // Continues from a training checkpoint of the same model: the next step is the one after it, bit for bit.
  Status resume(const std::string& folder);

  const v1::TrainConfig& config() const;  // resolved: every default filled in
  Model& model();
  // Null in a host-driven session whose model folder holds a tokenizer that is not supported.
  const Tokenizer* tokenizer() const;
  int64_t steps() const;  // optimizer steps done
  int64_t resumed_from_step() const;
  const std::vector<std::string>& warnings() const;

 private:
  Session();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace invar
