#include "core/checkpoint/model_writer.h"

#include <algorithm>
#include <cstring>

#include "core/checkpoint/parallel_chunks.h"
#include "core/numerics/codec.h"

namespace invar {

Result<ModelWriter> ModelWriter::create(FileSystem& files, const std::string& folder, ShardPlan plan,
                                        const StringMap& metadata) {
  ModelWriter writer(files, folder, std::move(plan));
  for (const Shard& shard : writer.plan_.shards) {
    for (const TensorSpec& tensor : shard.tensors) {
      writer.shard_of_.emplace_back(tensor.name, static_cast<uint32_t>(writer.shards_.size()));
    }
    INVAR_ASSIGN(auto file,
                 SafetensorsWriter::create(files, join_path(folder, shard.file_name), shard.tensors, metadata));
    INVAR_TRY(file.reserve());
    writer.shards_.push_back(std::move(file));
  }
  auto& names = writer.shard_of_;
  std::sort(names.begin(), names.end());
  const auto twice =
      std::adjacent_find(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != names.end()) {
    return Error(Code::kInvalidArgument, "safetensors.bad_tensor",
                 cat(folder, ": tensor ", in_quotes(twice->first), " is planned twice"));
  }
  return writer;
}

Status ModelWriter::write(std::string_view tensor, int64_t offset, std::span<const std::byte> bytes) {
  const auto it = std::lower_bound(shard_of_.begin(), shard_of_.end(), tensor,
                                   [](const auto& entry, std::string_view name) { return entry.first < name; });
  if (it == shard_of_.end() || it->first != tensor) {
    return Error(Code::kInvalidArgument, "safetensors.bad_tensor",
                 cat(folder_, ": tensor ", in_quotes(tensor), " was not declared"));
  }
  return shards_[it->second].write(tensor, offset, bytes);
}

Status ModelWriter::finish(bool durable) {
  for (SafetensorsWriter& shard : shards_) INVAR_TRY(shard.close(durable));
  return write_index(*files_, folder_, plan_);
}

ModelTensor tensor_in_memory(std::string name, std::vector<int64_t> shape, DType dtype, const void* data) {
  ModelTensor tensor{std::move(name), std::move(shape), {}, dtype};
  tensor.read = [dtype, data](int64_t first, int64_t count, float* out) -> Status {
    const auto* bytes = static_cast<const std::byte*>(data) + bytes_of(dtype, first);
    if (!convert_to_f32(dtype, bytes, out, count)) {
      return Error(Code::kInvalidArgument, "tensor.bad_dtype", cat(name_of(dtype), " cannot be read as numbers"));
    }
    return {};
  };
  return tensor;
}

namespace {

struct ChunkBuffers {
  std::vector<float> values;
  std::vector<std::byte> bytes;
};

// A run of a tensor as it is stored; in one of the buffers.
Result<std::span<const std::byte>> stored_bytes(const ModelTensor& tensor, int64_t first, int64_t count,
                                                ChunkBuffers* buffers) {
  buffers->bytes.resize(static_cast<size_t>(bytes_of(tensor.dtype, count)));
  if (tensor.read_stored) {
    INVAR_TRY(tensor.read_stored(bytes_of(tensor.dtype, first), buffers->bytes));
    return std::span<const std::byte>(buffers->bytes);
  }
  buffers->values.resize(static_cast<size_t>(count));
  INVAR_TRY(tensor.read(first, count, buffers->values.data()));
  if (tensor.dtype == DType::kF32) return std::as_bytes(std::span(buffers->values));
  if (!convert_from_f32(tensor.dtype, buffers->values.data(), buffers->bytes.data(), count)) {
    return Error(Code::kInvalidArgument, "tensor.bad_dtype",
                 cat("tensor ", in_quotes(tensor.name), ": numbers cannot be stored as ", name_of(tensor.dtype)));
  }
  return std::span<const std::byte>(buffers->bytes);
}

}  // namespace

Result<ShardPlan> write_model_files(FileSystem& files, const std::string& folder, const ModelFolder& model,
                                    const ModelWriteOptions& options) {
  std::vector<TensorSpec> specs;
  for (const ModelTensor& tensor : model.tensors) specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  INVAR_ASSIGN(auto writer,
               ModelWriter::create(files, folder, ShardPlan::by_size(std::move(specs), options.max_shard_bytes)));

  // Work is cut at fixed elements, so that chunks of several tensors keep all threads busy.
  constexpr int64_t kChunk = 1 << 19;
  struct Chunk {
    const ModelTensor* tensor;
    int64_t first, count;
  };
  std::vector<Chunk> chunks;
  for (const ModelTensor& tensor : model.tensors) {
    const int64_t count = element_count(tensor.shape);
    for (int64_t first = 0; first < count; first += kChunk) {
      chunks.push_back({&tensor, first, std::min(kChunk, count - first)});
    }
  }
  std::vector<ChunkBuffers> buffers(static_cast<size_t>(workers_of(options.pool)));
  INVAR_TRY(run_chunks(
      options.pool, options.cancel, static_cast<int64_t>(chunks.size()), [&](int64_t item, int worker) -> Status {
        const Chunk& chunk = chunks[static_cast<size_t>(item)];
        INVAR_ASSIGN(const std::span<const std::byte> bytes,
                     stored_bytes(*chunk.tensor, chunk.first, chunk.count, &buffers[static_cast<size_t>(worker)]));
        INVAR_TRY(writer.write(chunk.tensor->name, bytes_of(chunk.tensor->dtype, chunk.first), bytes));
        if (options.on_written) options.on_written(chunk.count);
        return {};
      }));
  INVAR_TRY(writer.finish(options.durable));
  if (!model.config.empty()) {
    INVAR_TRY(write_side_files(files, {{"config.json", model.config, ""}}, files, folder, options.durable));
  }
  FileSystem& from = model.side_file_system != nullptr ? *model.side_file_system : files;
  INVAR_TRY(write_side_files(files, model.side_files, from, folder, options.durable));
  return writer.plan();
}

Status write_model_folder(FileSystem& files, const std::string& target, const ModelFolder& folder,
                          const ModelWriteOptions& options) {
  INVAR_ASSIGN(auto staged, StagedDirectory::create(files, target));
  INVAR_TRY(write_model_files(files, staged.path(), folder, options).status());
  return staged.commit();
}

}  // namespace invar
