// From one stored form to another: FP8 checkpoints to BF16, FP16 or FP32, tensor by tensor, in bounded memory.
//
//   ThreadPool pool(2);
//   v1::ConvertConfig config;
//   config.set_source("DeepSeek-V3"); config.set_destination("DeepSeek-V3-bf16");
//   INVAR_ASSIGN(const v1::ConvertReport report, convert(config, {posix_files(), pool}));
//
// Every tensor is classified before a byte is written (layout.h). Then tiles stream: read, decode, multiply, round,
// write, one tile for each worker in flight. The result appears under its final name only when it is complete; on
// any failure, cancellation or kill the destination stays as it was. Tensors that are not low-bit floats stay byte
// for byte when the target is BF16; for FP16 and FP32, BF16 and FP16 tensors are cast and FP32 tensors stay.
// Thread rule: one conversion to one destination at a time; the pool may be shared.
#pragma once

#include <functional>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/thread_pool.h"
#include "core/container/checkpoint_folder.h"
#include "invar/v1/convert.pb.h"

namespace invar {

// What a job on checkpoints runs with.
struct WorkContext {
  FileSystem& files;
  ThreadPool& pool;
  const CancelFlag* cancel = nullptr;
  // Called with bytes done and in all, from any worker, one call at a time, at tile boundaries.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

// `config` is checked and completed with defaults here. config.calibrate belongs to core/calibrate and is not read.
// reasons besides those of layout.h, tile.h and the containers: output.same_as_input, output.missing,
// checkpoint.source_changed, checkpoint.verify_failed.
// FP8 targets quantise: convert_quantized.h.
Result<v1::ConvertReport> convert(const v1::ConvertConfig& config, const WorkContext& context);

// "output.same_as_input" when writing `destination`, or its staging folder, would overwrite the source.
Status check_destination(FileSystem& files, const CheckpointFolder& source, const std::string& destination);

}  // namespace invar
