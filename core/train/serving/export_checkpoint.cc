#include "core/train/serving/export_checkpoint.h"

#include <chrono>

#include "core/checkpoint/quantized_writer.h"
#include "core/checkpoint/training_state.h"
#include "core/family/family.h"

namespace invar {

namespace {

constexpr int64_t kMaxConfigBytes = 16 << 20;
constexpr const char* kMaster = "master";

Result<std::string> find_checkpoint(FileSystem& files, const std::string& source) {
  if (!files.is_directory(source)) {
    return Error(Code::kNotFound, "file.not_found", cat(source, ": no such folder"));
  }
  const std::string inside = join_path(source, "checkpoints");
  return newest_training_checkpoint(files, files.is_directory(inside) ? inside : source);
}

struct Stored {
  DType dtype;
  const char* torch_dtype;
};

// What unquantised tensors are written as.
Stored stored_as(v1::TargetFormat target) {
  if (target == v1::TARGET_FORMAT_FP32) return {DType::kF32, "float32"};
  if (target == v1::TARGET_FORMAT_FP16) return {DType::kF16, "float16"};
  return {DType::kBF16, "bfloat16"};
}

bool is_quantized(v1::TargetFormat target) {
  return target == v1::TARGET_FORMAT_FP8_BLOCK || target == v1::TARGET_FORMAT_FP8_TENSOR ||
         target == v1::TARGET_FORMAT_FP8_CHANNEL;
}

// Everything beside the weights that a loader wants: tokenizer, generation settings.
Result<std::vector<SideFile>> side_files_of(FileSystem& files, const std::string& checkpoint) {
  std::vector<SideFile> side_files;
  INVAR_ASSIGN(const auto entries, files.list(checkpoint));
  for (const DirEntry& entry : entries) {
    const bool is_weights = entry.name.find(".safetensors") != std::string::npos;
    if (entry.is_directory || is_weights || entry.name == "config.json") continue;
    side_files.push_back({entry.name, "", join_path(checkpoint, entry.name)});
  }
  return side_files;
}

Result<ModelFolder> model_folder_of(FileSystem& files, const TrainingCheckpoint& checkpoint, const Stored& stored) {
  const std::string config_path = join_path(checkpoint.path(), "config.json");
  INVAR_ASSIGN(const std::string text, read_text(files, config_path, kMaxConfigBytes));
  INVAR_ASSIGN(const ModelShape shape, parse_model_config(text, config_path));
  ModelFolder folder;
  INVAR_ASSIGN(folder.config, write_model_config(shape, stored.torch_dtype));
  INVAR_ASSIGN(folder.side_files, side_files_of(files, checkpoint.path()));
  for (const ParameterSpec& parameter : parameters_of(shape)) {
    const PieceRecord* master = checkpoint.find(parameter.name, kMaster);
    if (master == nullptr || master->dtype != DType::kF32 || master->shape != parameter.shape) {
      return Error(Code::kDataLoss, "training.no_state",
                   cat(checkpoint.path(), ": holds no FP32 master of \"", parameter.name, "\" in the model's shape"));
    }
    ModelTensor tensor;
    tensor.name = parameter.name;
    tensor.shape = parameter.shape;
    tensor.dtype = stored.dtype;
    tensor.read = [&checkpoint, name = parameter.name](int64_t first, int64_t count, float* out) {
      return checkpoint.read(name, kMaster, first, DType::kF32,
                             std::as_writable_bytes(std::span(out, static_cast<size_t>(count))));
    };
    folder.tensors.push_back(std::move(tensor));
  }
  return folder;
}

}  // namespace

Result<v1::ExportReport> export_checkpoint(const v1::ExportConfig& config, const ExportContext& context) {
  const auto start = std::chrono::steady_clock::now();
  INVAR_ASSIGN(const std::string path, find_checkpoint(context.files, config.source()));
  INVAR_ASSIGN(const TrainingCheckpoint checkpoint, TrainingCheckpoint::open(context.files, path));
  const Stored stored = stored_as(config.target());
  INVAR_ASSIGN(const ModelFolder folder, model_folder_of(context.files, checkpoint, stored));
  const ModelWriteOptions write = {.pool = &context.pool, .cancel = context.cancel};

  v1::ExportReport report;
  report.set_source(path);
  report.set_destination(config.destination());
  report.set_target(config.target());
  report.set_step(checkpoint.manifest().step);
  report.set_tensors(static_cast<int64_t>(folder.tensors.size()));
  report.set_quantized_tensors(0);
  if (is_quantized(config.target())) {
    QuantizedOptions options;
    options.layout = config.target() == v1::TARGET_FORMAT_FP8_BLOCK    ? Fp8Layout::kBlock
                     : config.target() == v1::TARGET_FORMAT_FP8_TENSOR ? Fp8Layout::kTensor
                                                                       : Fp8Layout::kChannel;
    options.keep.assign(config.keep_bf16().begin(), config.keep_bf16().end());
    if (config.bf16_copy()) options.bf16_copy = config.destination() + "-bf16";
    INVAR_ASSIGN(const QuantizedReport quantized,
                 write_quantized_model(context.files, config.destination(), folder, options, write));
    report.set_quantized_tensors(quantized.quantized);
    report.set_bytes_written(quantized.bytes);
    if (quantized.quantized > 0) report.set_sqnr_db(quantized.mean_sqnr_db);
    if (config.bf16_copy()) report.set_bf16_copy(options.bf16_copy);
  } else {
    if (config.bf16_copy()) {
      return Error(Code::kInvalidArgument, "config.conflict", "bf16_copy: only beside an FP8 target");
    }
    INVAR_TRY(write_model_folder(context.files, config.destination(), folder, write));
    int64_t bytes = 0;
    for (const ModelTensor& tensor : folder.tensors) {
      int64_t elements = 1;
      for (const int64_t size : tensor.shape) elements *= size;
      bytes += bytes_of(tensor.dtype, elements);
    }
    report.set_bytes_written(bytes);
  }
  report.set_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return report;
}

}  // namespace invar
