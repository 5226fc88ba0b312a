// Writes a Hugging Face folder: shards, index, config.json and the files beside them.
//
// Two levels. ModelWriter takes bytes for tensors that were declared in a ShardPlan; conversions stream through it.
// write_model_folder takes a list of tensors whose owners give FP32 values, and makes the whole folder appear at once.
//
//   ModelFolder folder;
//   folder.config = write_model_config(shape, "bfloat16");
//   folder.tensors.push_back(tensor_in_memory("lm_head.weight", {vocab, hidden}, DType::kBF16, pointer));
//   INVAR_TRY(write_model_folder(files, "out/model", folder, {}));
//
// Invariant: the target exists complete or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/thread_pool.h"
#include "core/checkpoint/side_files.h"
#include "core/container/safetensors_writer.h"
#include "core/container/shard_plan.h"

namespace invar {

// All shards of a plan, open for writing. Thread rule: write() from any number of threads for ranges that do not
// overlap; the rest from one.
class ModelWriter {
 public:
  // Creates every shard in `folder`, which exists, and reserves its bytes: a full disk fails here.
  static Result<ModelWriter> create(FileSystem& files, const std::string& folder, ShardPlan plan,
                                    const StringMap& metadata = SafetensorsWriter::default_metadata());

  Status write(std::string_view tensor, int64_t offset, std::span<const std::byte> bytes);
  // Closes the shards (each byte must have been written) and writes the index where one is needed.
  Status finish(bool durable);
  const ShardPlan& plan() const { return plan_; }

 private:
  ModelWriter(FileSystem& files, std::string folder, ShardPlan plan)
      : files_(&files), folder_(std::move(folder)), plan_(std::move(plan)) {}
  FileSystem* files_;
  std::string folder_;
  ShardPlan plan_;
  std::vector<SafetensorsWriter> shards_;
  std::vector<std::pair<std::string, uint32_t>> shard_of_;  // sorted by tensor
};

// Elements [first, first + count) of a tensor as FP32. May be called from several threads at once.
using ReadFloats = std::function<Status(int64_t first, int64_t count, float* out)>;

// Bytes of a tensor from `offset` on, as they are to be stored. May be called from several threads at once.
using ReadStored = std::function<Status(int64_t offset, std::span<std::byte> out)>;

// A tensor of a model as its owner holds it.
struct ModelTensor {
  std::string name;
  std::vector<int64_t> shape;
  ReadFloats read;
  DType dtype = DType::kBF16;   // as it is stored; F32 values are rounded to nearest even
  ReadStored read_stored = {};  // instead of `read`, for tensors whose bytes stay as they are
};

// A tensor that lies in memory as F32, BF16, F16 or F64; `data` must stay valid while it is written.
ModelTensor tensor_in_memory(std::string name, std::vector<int64_t> shape, DType dtype, const void* data);

struct ModelFolder {
  std::string config;  // config.json; empty: none is written
  std::vector<ModelTensor> tensors;
  std::vector<SideFile> side_files;
  FileSystem* side_file_system = nullptr;  // where side_files are copied from; null: the one written to
};

struct ModelWriteOptions {
  int64_t max_shard_bytes = 5'000'000'000;  // 0: one file
  bool durable = true;
  ThreadPool* pool = nullptr;                             // null: the calling thread
  const CancelFlag* cancel = nullptr;                     // checked between chunks
  std::function<void(int64_t elements)> on_written = {};  // after each chunk, from any thread of the pool
};

// Makes `target` (which must not exist or be an empty folder) appear complete.
Status write_model_folder(FileSystem& files, const std::string& target, const ModelFolder& folder,
                          const ModelWriteOptions& options);
// The same into a folder that exists, for larger staged folders. Not atomic by itself. The plan that was written is
// returned, so that a manifest can name the files.
Result<ShardPlan> write_model_files(FileSystem& files, const std::string& folder, const ModelFolder& model,
                                    const ModelWriteOptions& options);

}  // namespace invar
