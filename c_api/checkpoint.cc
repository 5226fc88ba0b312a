// Checkpoints: inspect, convert, verify, diff, calibrate, export, merge; and benchmarks.
#include "c_api/internal/work.h"
#include "core/calibrate/calibrate.h"
#include "core/checkpoint/convert.h"
#include "core/checkpoint/diff.h"
#include "core/checkpoint/inspect.h"
#include "core/checkpoint/merge.h"
#include "core/checkpoint/verify.h"
#include "core/train/bench/bench.h"
#include "core/train/export.h"
#include "invar/v1/bench.pb.h"
#include "invar/v1/calibrate.pb.h"
#include "invar/v1/checkpoint.pb.h"
#include "invar/v1/convert.pb.h"
#include "invar/v1/inspect.pb.h"
#include "invar/v1/report.pb.h"

namespace {

namespace v1 = invar::v1;
using invar::Code;
using invar::Error;
using invar::Result;
using invar::Status;
using invar::abi::entry;
using invar::abi::Outcome;
using invar::abi::Progress;
using invar::abi::RuntimeState;

// work(runtime, config, progress) -> Result<Report>.
template <typename Config, typename Work>
invar_status* on_runtime(const char* name, invar_runtime* runtime, const void* config, size_t config_size,
                         invar_cancel* cancel, const invar_progress_callback* progress, invar_bytes** report,
                         Work&& work) noexcept {
  return entry(name, [&](const char* function) -> Outcome {
    if (report != nullptr) *report = nullptr;
    INVAR_HANDLE(runtime);
    RuntimeState& state = *runtime->runtime;
    return invar::abi::run_work<Config>(
        function, config, config_size, cancel, progress, report,
        [&](const Config& checked, Progress& adapter) { return work(state, checked, adapter); });
  });
}

invar::WorkContext work_context(RuntimeState& state, invar::ThreadPool& pool, Progress& progress, const char* stage) {
  return {state.files(), pool, progress.flag(),
          [&progress, stage](int64_t done, int64_t total) { progress.work(stage, "", "bytes", done, total); }};
}

Result<v1::CalibrateReport> run_calibration(RuntimeState& state, const v1::CalibrateConfig& config,
                                            Progress& progress) {
  return invar::calibrate(config, {state.files(), state.pool_for(config.threads()), state.device_options,
                                   progress.flag(), [&progress](int64_t done, int64_t total) {
                                     progress.work("calibrate", "", "token layers", done, total);
                                   }});
}

// A conversion may take hours: what its calibration needs is looked for before.
Status check_calibration_text(RuntimeState& state, const v1::ConvertConfig& config) {
  if (!config.has_calibrate()) return {};
  const auto& paths = config.calibrate().data().paths();
  if (paths.empty()) {
    return Error(Code::kInvalidArgument, "config.missing_field",
                 "calibrate.data.paths: must be given: a list of files");
  }
  for (const std::string& path : paths) {
    if (!state.files().exists(path))
      return Error(Code::kNotFound, "file.not_found", invar::cat(path, ": no such file"));
  }
  return {};
}

}  // namespace

invar_status* invar_checkpoint_inspect(invar_runtime* runtime, const void* config, size_t config_size,
                                       invar_cancel* cancel, const invar_progress_callback* progress,
                                       invar_bytes** report) noexcept {
  return on_runtime<v1::InspectConfig>(
      __func__, runtime, config, config_size, cancel, progress, report,
      [](RuntimeState& state, const v1::InspectConfig& checked, Progress&) -> Result<v1::InspectReport> {
        return invar::inspect(checked, state.files());
      });
}

invar_status* invar_checkpoint_convert(invar_runtime* runtime, const void* config, size_t config_size,
                                       invar_cancel* cancel, const invar_progress_callback* progress,
                                       invar_bytes** report) noexcept {
  return on_runtime<v1::ConvertConfig>(
      __func__, runtime, config, config_size, cancel, progress, report,
      [](RuntimeState& state, const v1::ConvertConfig& checked, Progress& adapter) -> Result<v1::ConvertReport> {
        const auto pool = state.pool_for(checked.threads());
        INVAR_TRY(check_calibration_text(state, checked));
        auto report = invar::convert(checked, work_context(state, *pool, adapter, "convert"));
        if (!report.ok() || !checked.has_calibrate() || checked.dry_run()) return report;
        v1::CalibrateConfig calibrate = checked.calibrate();
        calibrate.set_source(checked.source());
        calibrate.set_destination(checked.destination());
        INVAR_ASSIGN(*report->mutable_calibration(), run_calibration(state, calibrate, adapter));
        report->set_passed(report->passed() && report->calibration().passed());
        return report;
      });
}

invar_status* invar_checkpoint_verify(invar_runtime* runtime, const void* config, size_t config_size,
                                      invar_cancel* cancel, const invar_progress_callback* progress,
                                      invar_bytes** report) noexcept {
  return on_runtime<v1::VerifyConfig>(
      __func__, runtime, config, config_size, cancel, progress, report,
      [](RuntimeState& state, const v1::VerifyConfig& checked, Progress& adapter) -> Result<v1::VerifyReport> {
        const auto pool = state.pool_for(checked.threads());
        return invar::verify(checked, work_context(state, *pool, adapter, "verify"));
      });
}

invar_status* invar_checkpoint_diff(invar_runtime* runtime, const void* config, size_t config_size,
                                    invar_cancel* cancel, const invar_progress_callback* progress,
                                    invar_bytes** report) noexcept {
  return on_runtime<v1::DiffConfig>(
      __func__, runtime, config, config_size, cancel, progress, report,
      [](RuntimeState& state, const v1::DiffConfig& checked, Progress& adapter) -> Result<v1::DiffReport> {
        const auto pool = state.pool_for(checked.threads());
        return invar::diff(checked, work_context(state, *pool, adapter, "diff"));
      });
}

invar_status* invar_checkpoint_calibrate(invar_runtime* runtime, const void* config, size_t config_size,
                                         invar_cancel* cancel, const invar_progress_callback* progress,
                                         invar_bytes** report) noexcept {
  return on_runtime<v1::CalibrateConfig>(__func__, runtime, config, config_size, cancel, progress, report,
                                         [](RuntimeState& state, const v1::CalibrateConfig& checked,
                                            Progress& adapter) { return run_calibration(state, checked, adapter); });
}

invar_status* invar_checkpoint_export(invar_runtime* runtime, const void* config, size_t config_size,
                                      invar_cancel* cancel, const invar_progress_callback* progress,
                                      invar_bytes** report) noexcept {
  return on_runtime<v1::ExportConfig>(
      __func__, runtime, config, config_size, cancel, progress, report,
      [](RuntimeState& state, const v1::ExportConfig& checked, Progress& adapter) -> Result<v1::ExportReport> {
        const auto pool = state.pool_for(checked.threads());
        adapter.note("export", checked.destination());
        return invar::export_checkpoint(checked, {.files = &state.files(),
                                                  .pool = pool.get(),
                                                  .cancel = adapter.flag(),
                                                  .progress = [&](int64_t done, int64_t total) {
                                                    adapter.work("export", "", "elements", done, total);
                                                  }});
      });
}

invar_status* invar_checkpoint_merge(invar_runtime* runtime, const void* config, size_t config_size,
                                     invar_cancel* cancel, const invar_progress_callback* progress,
                                     invar_bytes** report) noexcept {
  return on_runtime<v1::MergeConfig>(
      __func__, runtime, config, config_size, cancel, progress, report,
      [](RuntimeState& state, const v1::MergeConfig& checked, Progress& adapter) -> Result<v1::MergeReport> {
        const auto pool = state.pool_for(checked.threads());
        return invar::merge(checked, {state.files(), *pool, adapter.flag(), [&adapter](int64_t done, int64_t total) {
                                        adapter.work("merge", "", "elements", done, total);
                                      }});
      });
}

invar_status* invar_bench_run(invar_runtime* runtime, const void* config, size_t config_size, invar_cancel* cancel,
                              const invar_progress_callback* progress, invar_bytes** report) noexcept {
  return on_runtime<v1::BenchConfig>(
      __func__, runtime, config, config_size, cancel, progress, report,
      [](RuntimeState& state, const v1::BenchConfig& checked, Progress& adapter) -> Result<v1::BenchReport> {
        const invar::BenchEnvironment environment = {
            state.pool_for(checked.threads()), &state.files(), adapter.flag(),
            [&](int64_t done, int64_t total, double) { adapter.work("bench", "", "steps", done, total); }};
        return invar::run_bench(checked, environment);
      });
}
