#include "core/checkpoint/convert_quantized.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>

#include "core/checkpoint/layout.h"
#include "core/checkpoint/quantized_writer.h"
#include "core/checkpoint/side_files.h"
#include "core/checkpoint/values.h"
#include "core/checkpoint/verify.h"

namespace invar {
namespace {

Fp8Layout layout_of(v1::TargetFormat target) {
  switch (target) {
    case v1::TARGET_FORMAT_FP8_TENSOR: return Fp8Layout::kTensor;
    case v1::TARGET_FORMAT_FP8_CHANNEL: return Fp8Layout::kChannel;
    default: return Fp8Layout::kBlock;
  }
}

Status check_options(const v1::ConvertConfig& config) {
  const auto refuse = [](std::string_view option) {
    return Error(Code::kUnimplemented, "convert.unsupported_option",
                 cat(option, ": is not available for an FP8 target"));
  };
  if (config.rounding() == v1::ROUNDING_FP64) return refuse("rounding fp64");
  if (config.nan_policy() == v1::NAN_POLICY_KEEP) return refuse("nan_policy keep");
  if (config.destination().empty() && !config.dry_run()) {
    return Error(Code::kInvalidArgument, "output.missing", "destination: is empty; name the folder to write");
  }
  return {};
}

}  // namespace

Result<v1::ConvertReport> convert_quantized(const v1::ConvertConfig& config, const WorkContext& context) {
  const auto begin = std::chrono::steady_clock::now();
  INVAR_TRY(check_options(config));
  INVAR_ASSIGN(const CheckpointFolder source, CheckpointFolder::open(context.files, config.source()));
  if (!config.dry_run()) INVAR_TRY(check_destination(context.files, source, config.destination()));
  INVAR_ASSIGN(const Layout layout, classify(source, Assumptions(config.assume().begin(), config.assume().end())));
  SideFileOptions side_options;
  side_options.torch_dtype = "bfloat16";
  INVAR_ASSIGN(SideFilePlan side_files, plan_side_files(source, side_options));

  ModelFolder folder;
  folder.side_file_system = &context.files;
  for (SideFile& file : side_files.files) {
    if (file.name == "config.json") {
      folder.config = std::move(file.text);
    } else {
      folder.side_files.push_back(std::move(file));
    }
  }
  if (folder.config.empty()) {
    return Error(Code::kInvalidArgument, "checkpoint.bad_config",
                 cat(config.source(), ": has no config.json, which an FP8 checkpoint must have to say what it is"));
  }
  std::mutex mutex;
  int64_t done = 0, total = 0;
  for (const TensorPlan& plan : layout.tensors) {
    const DType dtype = plan.source->dtype;
    if (!plan.quantized() && dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
      return Error(
          Code::kUnimplemented, "checkpoint.unsupported_layout",
          cat(join_path(source.path(), source.file_name(*plan.source)), ": tensor ", in_quotes(plan.source->name),
              " is ", name_of(dtype), "; an FP8 target takes F32, BF16, F16 and low-bit weights"));
    }
    total += element_count(plan.shape);
    const auto read = [&source, &context, &mutex, &done, &total, &plan](int64_t first, int64_t count, float* out) {
      ValueReader reader(source);
      INVAR_TRY(reader.read(plan, first, std::span(out, static_cast<size_t>(count))));
      if (!context.progress) return Status();
      std::lock_guard lock(mutex);
      // Some layouts read a matrix twice.
      done = std::min(total, done + count);
      context.progress(done, total);
      return Status();
    };
    folder.tensors.push_back({plan.name, plan.shape, read, plan.quantized() ? DType::kBF16 : dtype});
  }

  QuantizedOptions options;
  options.layout = layout_of(config.target());
  options.keep.assign(config.keep().begin(), config.keep().end());
  ModelWriteOptions write;
  write.max_shard_bytes = config.shard_bytes();
  write.durable = config.durable();
  write.pool = &context.pool;
  write.cancel = context.cancel;

  v1::ConvertReport report;
  report.set_source(config.source());
  report.set_destination(config.destination());
  report.set_layout(layout.name);
  report.set_target(config.target());
  report.set_rounding(config.rounding());
  report.set_nan_policy(config.nan_policy());
  report.set_dry_run(config.dry_run());
  if (config.verify()) {
    options.check = [&](const std::string& staged) { return verify_staged(config, staged, context, &report); };
  }
  report.set_arithmetic("decode, multiply in fp32, divide by amax / 448, round to nearest even to F8_E4M3");
  std::map<std::string, QuantizedTensorReport> results;
  if (!config.dry_run()) {
    INVAR_ASSIGN(const QuantizedReport written,
                 write_quantized_model(context.files, config.destination(), folder, options, write));
    for (const QuantizedTensorReport& tensor : written.tensors) results[tensor.name] = tensor;
    report.set_bytes_written(written.bytes);
    for (const std::string& warning : reader_warnings(written)) report.add_warnings(warning);
  }
  std::map<std::string, v1::RuleCount> rules;
  for (const TensorPlan& plan : layout.tensors) {
    const auto it = results.find(plan.name);
    const bool copied = it != results.end() ? it->second.rule == "copy" : !is_linear_weight(plan.name, plan.shape);
    v1::ConvertedTensor& line = *report.add_tensors();
    line.set_name(plan.source->name);
    if (plan.name != plan.source->name) line.set_new_name(plan.name);
    line.set_rule(!copied ? "quantize" : plan.quantized() ? plan.rule : "copy");
    line.set_source_dtype(static_cast<v1::DType>(plan.source->dtype));
    line.set_target_dtype(!copied            ? v1::DTYPE_FP8_E4M3
                          : plan.quantized() ? v1::DTYPE_BF16
                                             : static_cast<v1::DType>(plan.source->dtype));
    for (int64_t size : plan.shape) line.add_shape(size);
    line.set_elements(element_count(plan.shape));
    for (const ScaleTerm& scale : plan.scales) line.add_scales(scale.tensor->name);
    if (it != results.end() && !copied) {
      line.set_sqnr_db(it->second.sqnr_db);
      line.set_amax(it->second.amax);
      line.set_underflows(it->second.zero_codes);
    }
    v1::RuleCount& count = rules[line.rule()];
    count.set_rule(line.rule());
    count.set_tensors(count.tensors() + 1);
    count.set_elements(count.elements() + line.elements());
    count.set_bytes(count.bytes() + plan.source->byte_size());
    report.set_bytes_read(report.bytes_read() + plan.source->byte_size());
  }
  for (const auto& [rule, count] : rules) *report.add_rules() = count;
  for (const Finding& finding : layout.findings) report.add_warnings(cat(finding.reason, ": ", finding.message));
  report.set_tensors_read(static_cast<int64_t>(source.tensors().size()));
  report.set_tensors_written(config.dry_run() ? 0 : report.tensors_size());
  report.set_passed(true);
  report.set_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return report;
}

}  // namespace invar
