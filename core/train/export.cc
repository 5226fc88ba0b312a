#include "core/train/export.h"

#include <atomic>
#include <chrono>
#include <cmath>

#include "core/checkpoint/quantized_writer.h"
#include "core/checkpoint/training_state.h"
#include "core/family/family.h"
#include "core/model/weights_folder.h"
#include "core/train/run_folder.h"

namespace invar {
namespace {

using Clock = std::chrono::steady_clock;

bool is_quantized(v1::TargetFormat target) {
  return target == v1::TARGET_FORMAT_FP8_BLOCK || target == v1::TARGET_FORMAT_FP8_TENSOR ||
         target == v1::TARGET_FORMAT_FP8_CHANNEL;
}

// How an unquantised folder stores its tensors; BF16 is also what FP8 folders keep beside their matrices.
DType stored_dtype(v1::TargetFormat target) {
  return target == v1::TARGET_FORMAT_FP16 ? DType::kF16 : target == v1::TARGET_FORMAT_FP32 ? DType::kF32 : DType::kBF16;
}

std::string_view torch_name(DType dtype) {
  return dtype == DType::kF16 ? "float16" : dtype == DType::kF32 ? "float32" : "bfloat16";
}

Status check(const v1::ExportConfig& config) {
  if (config.destination().empty()) {
    return Error(Code::kInvalidArgument, "config.missing_field", "destination: the folder to write is not named");
  }
  if (config.format() != v1::CONTAINER_FORMAT_HF) {
    return Error(Code::kUnimplemented, "config.unsupported", "format: only \"hf\" can be written so far");
  }
  if (config.bf16_copy() && !is_quantized(config.target())) {
    return Error(Code::kInvalidArgument, "config.unsupported",
                 cat("bf16_copy: goes with an fp8 target, not with ", target_name(config.target())));
  }
  return {};
}

Result<v1::ExportReport> write(ModelFolder folder, const ModelShape& shape, const v1::ExportConfig& config,
                               const ExportEnvironment& environment) {
  const auto start = Clock::now();
  const DType stored = stored_dtype(config.target());
  INVAR_ASSIGN(folder.config, write_model_config(shape, torch_name(stored)));
  int64_t plain_bytes = 0, elements = 0;
  for (ModelTensor& tensor : folder.tensors) {
    tensor.dtype = stored;
    int64_t count = 1;
    for (const int64_t size : tensor.shape) count *= size;
    plain_bytes += bytes_of(stored, count);
    elements += config.bf16_copy() ? 2 * count : count;
  }
  std::atomic<int64_t> done{0};
  ModelWriteOptions options{.pool = environment.pool, .cancel = environment.cancel};
  if (environment.progress) {
    options.on_written = [&](int64_t count) { environment.progress(done += count, elements); };
  }
  v1::ExportReport report;
  report.set_destination(config.destination());
  report.set_target(config.target());
  report.set_tensors(static_cast<int64_t>(folder.tensors.size()));
  report.set_quantized_tensors(0);
  report.set_bytes_written(plain_bytes);
  if (is_quantized(config.target())) {
    QuantizedOptions quantized;
    quantized.layout = config.target() == v1::TARGET_FORMAT_FP8_BLOCK    ? Fp8Layout::kBlock
                       : config.target() == v1::TARGET_FORMAT_FP8_TENSOR ? Fp8Layout::kTensor
                                                                         : Fp8Layout::kChannel;
    quantized.keep.assign(config.keep_bf16().begin(), config.keep_bf16().end());
    if (config.bf16_copy()) {
      quantized.bf16_copy = config.destination() + "-bf16";
      report.set_bf16_copy(quantized.bf16_copy);
    }
    INVAR_ASSIGN(const QuantizedReport written,
                 write_quantized_model(*environment.files, config.destination(), folder, quantized, options));
    report.set_quantized_tensors(written.quantized);
    report.set_bytes_written(written.bytes + (config.bf16_copy() ? plain_bytes : 0));
    if (written.quantized > 0 && std::isfinite(written.mean_sqnr_db)) report.set_sqnr_db(written.mean_sqnr_db);
    for (const std::string& warning : reader_warnings(written)) report.add_warnings(warning);
    if (written.quantized == 0) {
      report.add_warnings("no matrix was quantised: keep_bf16 matches every linear layer");
    }
  } else {
    INVAR_TRY(write_model_folder(*environment.files, config.destination(), folder, options));
  }
  report.set_seconds(std::chrono::duration<double>(Clock::now() - start).count());
  return report;
}

}  // namespace

std::string target_name(v1::TargetFormat target) {
  switch (target) {
    case v1::TARGET_FORMAT_FP16: return "fp16";
    case v1::TARGET_FORMAT_FP32: return "fp32";
    case v1::TARGET_FORMAT_FP8_BLOCK: return "fp8_block";
    case v1::TARGET_FORMAT_FP8_TENSOR: return "fp8_tensor";
    case v1::TARGET_FORMAT_FP8_CHANNEL: return "fp8_channel";
    default: return "bf16";
  }
}

Result<v1::ExportReport> export_checkpoint(const v1::ExportConfig& config, const ExportEnvironment& environment) {
  INVAR_TRY(check(config));
  INVAR_ASSIGN(const std::string path, resolve_checkpoint(*environment.files, config.source()));
  INVAR_ASSIGN(const auto checkpoint, TrainingCheckpoint::open(*environment.files, path));
  INVAR_ASSIGN(const auto stored, CheckpointFolder::open(*environment.files, path));
  INVAR_ASSIGN(const ModelShape shape, read_model_shape(*environment.files, path));
  ModelFolder folder;
  for (const ParameterSpec& spec : parameters_of(shape)) {
    const PieceRecord* piece = checkpoint.find(spec.name, "master");
    if (piece == nullptr || piece->shape != spec.shape) {
      return Error(Code::kDataLoss, "checkpoint.shape_mismatch",
                   cat(path, ": ", piece == nullptr ? "no master" : "another shape", " of \"", spec.name,
                       "\" than config.json says"));
    }
    const auto read = [&checkpoint, name = spec.name](int64_t first, int64_t count, float* out) {
      return checkpoint.read(name, "master", first, DType::kF32,
                             std::as_writable_bytes(std::span(out, static_cast<size_t>(count))));
    };
    folder.tensors.push_back({.name = spec.name, .shape = spec.shape, .read = read});
  }
  for (const std::string& name : stored.side_files()) {
    if (name != "config.json") folder.side_files.push_back({name, "", join_path(path, name)});
  }
  INVAR_ASSIGN(v1::ExportReport report, write(std::move(folder), shape, config, environment));
  report.set_source(path);
  report.set_step(checkpoint.manifest().step);
  return report;
}

Result<v1::ExportReport> export_learner(const Learner& learner, std::vector<SideFile> side_files,
                                        const v1::ExportConfig& config, const ExportEnvironment& environment) {
  INVAR_TRY(check(config));
  ModelFolder folder;
  const auto parameters = learner.model().parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    folder.tensors.push_back(
        tensor_in_memory(parameters[i].spec.name, parameters[i].spec.shape, DType::kF32, learner.master(i)));
  }
  folder.side_files = std::move(side_files);
  INVAR_ASSIGN(v1::ExportReport report, write(std::move(folder), learner.model().shape(), config, environment));
  report.set_step(learner.steps());
  return report;
}

}  // namespace invar
