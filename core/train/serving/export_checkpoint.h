// A training checkpoint as a serving folder: its FP32 masters rounded once to BF16, FP16 or FP32, or quantised to FP8.
// Thread rule: functions; the pool may be shared.
#pragma once

#include <string>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/thread_pool.h"
#include "invar/v1/checkpoint.pb.h"
#include "invar/v1/report.pb.h"

namespace invar {

struct ExportContext {
  FileSystem& files;
  ThreadPool& pool;
  const CancelFlag* cancel = nullptr;
};

// `config` is resolved. source: a checkpoint, a run's folder (its newest checkpoint) or that folder's checkpoints/.
// "output.not_empty", "training.no_checkpoint", and the reasons of training_state.h and quantized_writer.h.
Result<v1::ExportReport> export_checkpoint(const v1::ExportConfig& config, const ExportContext& context);

}  // namespace invar
