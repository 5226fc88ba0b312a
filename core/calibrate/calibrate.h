// Two checkpoints on the same tokens: is the destination as good a model as the source?
//
//   v1::CalibrateConfig config;
//   config.set_source("model-fp8"); config.set_destination("model-bf16"); config.mutable_data()->add_paths("text.txt");
//   INVAR_ASSIGN(const v1::CalibrateReport report, calibrate(config, {posix_files(), pool}));
//   if (!report.passed()) ... report.verdict() ...
//
// The source runs as it is served: stored weights exactly, inputs of its FP8 products quantised as it declares, FP32
// products. The destination, and a source without quantised weights, run in BF16. Beside them runs the source's
// weights alone, exactly and with unquantised activations, so that the report tells what the activations cost.
// Memory: the source's weights in FP32 and the destination's in BF16, and the logits of one pass of each.
// Thread rule: one call at a time for a pool; cancel may be set from anywhere.
#pragma once

#include <functional>
#include <memory>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"
#include "core/device/device.h"
#include "invar/v1/calibrate.pb.h"

namespace invar {

struct CalibrateContext {
  FileSystem& files;
  std::shared_ptr<ThreadPool> pool;
  DeviceOptions device = {};  // log sink and allocator
  const CancelFlag* cancel = nullptr;
  // Called with work done and in all, in tokens through models; from the calling thread.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

// `config` is checked and completed with defaults here; the pool is the thread budget. data.paths: text or JSONL,
// read by the tokenizer of data.tokenizer (the source folder's, unless it says otherwise), or files of little-endian
// token ids named *.u16 or *.u32. Text too short for one sequence of the default length makes one shorter sequence.
// A gate that fails is a result (report.passed), not an error. reasons besides those of config, text, containers and
// checkpoint/layout.h: calibrate.shape_mismatch, calibrate.sequence_too_long, model.missing_tensor,
// model.shape_mismatch, model.dtype.
Result<v1::CalibrateReport> calibrate(const v1::CalibrateConfig& config, const CalibrateContext& context);

}  // namespace invar
