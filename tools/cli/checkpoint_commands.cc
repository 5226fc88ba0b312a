// info, inspect, convert, verify, diff, calibrate, export, merge.
#include <cmath>
#include <cstdio>

#include "tools/cli/command.h"
#include "tools/cli/config_file.h"
#include "tools/cli/html_report.h"

namespace cli {

namespace {

using nlohmann::json;

const json& array_of(const json& object, const char* key) {
  static const json kEmpty = json::array();
  const auto found = object.find(key);
  return found == object.end() ? kEmpty : *found;
}

// "[2, 3]".
std::string list_text(const json& object, const char* key) {
  std::string out = "[";
  for (const auto& size : array_of(object, key))
    out += (out.size() > 1 ? ", " : "") + std::to_string(size.get<long long>());
  return out + "]";
}

void print_info(const json& report) {
  std::printf("%s", text(report, "build").c_str());
  std::printf("processors: %lld, threads: %lld\n", integer(report, "processors"), integer(report, "threads"));
  std::string features;
  for (const auto& feature : array_of(report, "cpu_features")) features += " " + feature.get<std::string>();
  std::printf("cpu:%s\nkernels: %s\n", features.c_str(), text(report, "kernels").c_str());
  for (const auto& device : array_of(report, "devices")) {
    std::printf("device %s: %s\n", text(device, "name").c_str(), text(device, "description").c_str());
  }
  std::string families, known;
  for (const auto& family : array_of(report, "families")) families += " " + family.get<std::string>();
  for (const auto& feature : array_of(report, "features")) known += " " + feature.get<std::string>();
  std::printf("model families:%s\nfeatures:%s\n", families.c_str(), known.c_str());
}

void print_rules(const json& report) {
  for (const auto& rule : array_of(report, "rules")) {
    std::printf("  %-14s %6lld tensors  %15s elements  %s\n", text(rule, "rule").c_str(), integer(rule, "tensors"),
                count_text(integer(rule, "elements")).c_str(), bytes_text(number(rule, "bytes")).c_str());
  }
}

void print_inspect(const json& report) {
  std::printf("%s: %s", text(report, "path").c_str(), text(report, "container").c_str());
  if (!text(report, "model_type").empty()) std::printf(", model type %s", text(report, "model_type").c_str());
  if (!text(report, "layout").empty()) std::printf(", layout %s", text(report, "layout").c_str());
  if (!text(report, "quant_method").empty()) std::printf(" (quant_method %s)", text(report, "quant_method").c_str());
  std::printf("\n%lld files, %lld tensors, %s parameters, %s\n", integer(report, "files"), integer(report, "tensors"),
              count_text(integer(report, "parameters")).c_str(), bytes_text(number(report, "bytes")).c_str());
  std::printf("by dtype\n");
  for (const auto& dtype : array_of(report, "dtypes")) {
    std::printf("  %-14s %6lld tensors  %15s elements  %s\n", text(dtype, "dtype").c_str(), integer(dtype, "tensors"),
                count_text(integer(dtype, "elements")).c_str(), bytes_text(number(dtype, "bytes")).c_str());
  }
  if (!array_of(report, "rules").empty()) std::printf("by conversion rule\n");
  print_rules(report);
  for (const auto& tensor : array_of(report, "tensor")) {
    std::printf("%s  %s %s  %s  %s\n", text(tensor, "name").c_str(), text(tensor, "dtype").c_str(),
                list_text(tensor, "shape").c_str(), text(tensor, "rule").c_str(), text(tensor, "file").c_str());
  }
  print_warnings(report);
}

void print_calibrate(const json& report) {
  std::printf("calibration on %s tokens\n", count_text(integer(report, "tokens")).c_str());
  std::printf("  loss           %.6f -> %.6f  (%+.4f%%, paired standard error %.2g)\n", number(report, "source_loss"),
              number(report, "destination_loss"), 100 * number(report, "loss_delta"),
              number(report, "difference_standard_error"));
  if (report.contains("weight_only_loss")) {
    std::printf("  weights alone  %.6f\n", number(report, "weight_only_loss"));
  }
  std::printf("  KL             mean %.3g, 99th percentile %.3g nats\n", number(report, "kl_mean"),
              number(report, "kl_p99"));
  std::printf("  top-1          %.2f%% agree\n", 100 * number(report, "top1_agreement"));
  const bool passed = report.value("passed", false);
  std::printf("  verdict        %s (gate: %.3g%% relative loss)%s%s\n", passed ? "passed" : "FAILED",
              100 * number(report, "max_loss_delta"), passed ? "" : ": ",
              passed ? "" : text(report, "verdict").c_str());
  print_warnings(report);
}

void print_verify(const json& report) {
  std::printf("verify: %lld tensors, %s elements: %s\n", integer(report, "tensors"),
              count_text(integer(report, "elements")).c_str(),
              report.value("passed", false) ? "equal to the source" : "DIFFERENT");
  for (const auto& problem : array_of(report, "problems")) {
    std::printf("  %s: %s: %s\n", text(problem, "kind").c_str(), text(problem, "tensor").c_str(),
                text(problem, "detail").c_str());
  }
  const long long shown = static_cast<long long>(array_of(report, "problems").size());
  if (integer(report, "problem_count") > shown) {
    std::printf("  and %lld more\n", integer(report, "problem_count") - shown);
  }
  print_warnings(report);
}

void print_convert(const json& report) {
  const bool dry_run = report.value("dry_run", false);
  std::printf("%s -> %s%s\n", text(report, "source").c_str(),
              dry_run ? "nothing (dry run)" : text(report, "destination").c_str(),
              text(report, "layout").empty() ? "" : (", layout " + text(report, "layout")).c_str());
  std::printf("%s\n", text(report, "arithmetic").c_str());
  print_rules(report);
  const double seconds = number(report, "seconds");
  if (!dry_run) {
    std::printf("%lld tensors read, %lld written, %s read, %s written in %.2f s (%s/s)\n",
                integer(report, "tensors_read"), integer(report, "tensors_written"),
                bytes_text(number(report, "bytes_read")).c_str(), bytes_text(number(report, "bytes_written")).c_str(),
                seconds, bytes_text(number(report, "bytes_read") / std::fmax(seconds, 1e-9)).c_str());
  }
  if (integer(report, "reencode_checked") > 0) {
    std::printf("re-encode check: %s of %s elements encode back to the stored code\n",
                count_text(integer(report, "reencode_checked") - integer(report, "reencode_mismatched")).c_str(),
                count_text(integer(report, "reencode_checked")).c_str());
  }
  if (report.contains("proof_bytes")) {
    std::printf("full proof: SHA-256 of %s read again in %.2f s (%s/s)\n",
                bytes_text(number(report, "proof_bytes")).c_str(), number(report, "proof_seconds"),
                bytes_text(number(report, "proof_bytes") / std::fmax(number(report, "proof_seconds"), 1e-9)).c_str());
  }
  if (integer(report, "nan_codes") > 0) std::printf("NaN codes: %lld\n", integer(report, "nan_codes"));
  for (const auto& file : array_of(report, "files")) {
    const std::string action = text(file, "action");
    if (action == "copied") continue;
    std::printf("%s: %s%s\n", text(file, "name").c_str(), action.c_str(),
                text(file, "detail").empty() ? "" : (", " + text(file, "detail")).c_str());
  }
  if (report.contains("verification")) print_verify(report["verification"]);
  if (report.contains("calibration")) print_calibrate(report["calibration"]);
  print_warnings(report);
}

void print_tensor_diff(const json& tensor) {
  const std::string kind = text(tensor, "difference"), dtype_a = text(tensor, "dtype_a"),
                    dtype_b = text(tensor, "dtype_b");
  std::printf("%s: ", text(tensor, "name").c_str());
  if (kind == "shape") {
    std::printf("shapes differ: %s %s in A, %s %s in B\n", dtype_a.c_str(), list_text(tensor, "shape_a").c_str(),
                dtype_b.c_str(), list_text(tensor, "shape_b").c_str());
    return;
  }
  if (kind == "dtype") {
    std::printf("dtypes differ and cannot be compared: %s in A, %s in B\n", dtype_a.c_str(), dtype_b.c_str());
    return;
  }
  if (kind == "stored_as") {
    std::printf("equal values, stored as %s in A and %s in B\n", dtype_a.c_str(), dtype_b.c_str());
    return;
  }
  std::printf("%s of %s elements differ", count_text(integer(tensor, "different")).c_str(),
              count_text(integer(tensor, "elements")).c_str());
  if (tensor.contains("max_abs")) {
    std::printf(", by at most %.3g, SQNR %.1f dB", number(tensor, "max_abs"), number(tensor, "sqnr_db"));
  }
  std::printf("; first at %s", list_text(tensor, "first_at").c_str());
  if (tensor.contains("first_a")) std::printf(": %.9g / %.9g", number(tensor, "first_a"), number(tensor, "first_b"));
  std::printf(" (%s%s%s)%s\n", dtype_a.c_str(), dtype_a == dtype_b ? "" : " / ",
              dtype_a == dtype_b ? "" : dtype_b.c_str(), kind == "within_tolerance" ? ", within the tolerance" : "");
}

void print_diff(const json& report) {
  for (const auto& name : array_of(report, "only_in_a"))
    std::printf("%s: only in A\n", name.get<std::string>().c_str());
  for (const auto& name : array_of(report, "only_in_b"))
    std::printf("%s: only in B\n", name.get<std::string>().c_str());
  long long shapes = 0, dtypes = 0, values = 0;
  for (const auto& tensor : array_of(report, "tensors")) {
    print_tensor_diff(tensor);
    const std::string kind = text(tensor, "difference");
    shapes += kind == "shape";
    dtypes += kind == "dtype";
    values += kind == "value";
  }
  std::printf("%lld tensors in both, %lld equal", integer(report, "compared"), integer(report, "equal"));
  const auto part = [](long long count, const char* what) {
    if (count > 0) std::printf(", %lld %s", count, what);
  };
  part(values, "of other values");
  part(shapes, "of another shape");
  part(dtypes, "of another dtype");
  part(static_cast<long long>(array_of(report, "only_in_a").size()), "only in A");
  part(static_cast<long long>(array_of(report, "only_in_b").size()), "only in B");
  if (report.value("identical", false)) {
    std::printf(": identical\n");
  } else {
    std::printf(": DIFFERENT, first in %s\n", text(report, "first_different").c_str());
  }
  print_warnings(report);
}

void print_export(const json& report) {
  std::printf("%s (step %lld) -> %s: %lld tensors, %lld quantised, %s\n", text(report, "source").c_str(),
              integer(report, "step"), text(report, "destination").c_str(), integer(report, "tensors"),
              integer(report, "quantized_tensors"), bytes_text(number(report, "bytes_written")).c_str());
  if (report.contains("sqnr_db")) std::printf("mean SQNR of quantised tensors: %.1f dB\n", number(report, "sqnr_db"));
  if (report.contains("bf16_copy")) std::printf("bf16 copy: %s\n", text(report, "bf16_copy").c_str());
  print_warnings(report);
}

void print_merge(const json& report) {
  for (const auto& tensor : array_of(report, "tensors")) {
    std::printf("%-60s %s", text(tensor, "name").c_str(), text(tensor, "rule").c_str());
    if (tensor.contains("rank")) {
      std::printf(", rank %lld, scaling %.4g", integer(tensor, "rank"), number(tensor, "scaling"));
    }
    std::printf("\n");
  }
  std::printf("%s + %s -> %s: %zu of %lld tensors changed, %s\n", text(report, "base").c_str(),
              text(report, "adapter").c_str(), text(report, "destination").c_str(), array_of(report, "tensors").size(),
              integer(report, "tensors_written"), bytes_text(number(report, "bytes_written")).c_str());
  print_warnings(report);
}

// A field of the report as JSON, without printing it.
bool is_true(const Message& report, const char* key) { return json::parse(report.json(false)).value(key, true); }

}  // namespace

void add_checkpoint_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands) {
  const auto add = [&](const char* name, const char* description, const char* type, const char* examples) -> Command& {
    commands.push_back(std::make_unique<Command>(app, context, name, description, type, examples));
    return *commands.back();
  };

  add("info", "library, CPU features, devices, limits", "", "  invar info\n  invar info --json\n")
      .run([&](const Message&) {
        invar_bytes* report = nullptr;
        check(invar_runtime_info(context.runtime.get(), &report));
        show(context, Message(context.runtime.get(), "InfoReport", take(report)), print_info);
        return kDone;
      });

  auto& inspect = add("inspect", "what a checkpoint stores, by reading headers only", "inspect",
                      "  invar inspect DeepSeek-V3\n  invar inspect model --names '*.q_proj.*'\n");
  inspect.value("PATH", "path", "checkpoint folder or safetensors file");
  auto* names = inspect.value("--names", "names", "list the tensors whose name matches this pattern");
  inspect.entries("--assume", "assume", "answer an open question: block=128x128");
  inspect.run([&context, names](Message config) {
    // Without a pattern people want the summary; scripts get every tensor.
    if (names->count() == 0 && !context.json) config.set("tensors=false");
    show(context, run_work(context, invar_checkpoint_inspect, config, "InspectReport"), print_inspect);
    return kDone;
  });

  auto& convert = add("convert", "an FP8 checkpoint to BF16, or between stored forms, with proof", "convert",
                      "  invar convert DeepSeek-V3 DeepSeek-V3-bf16\n"
                      "  invar convert fp8 bf16 --calibrate heldout.txt --max-loss-delta 0.5% --report report.json\n"
                      "  invar convert fp8 x --dry-run --assume block=128x128\n"
                      "  invar convert fp8 mixed --only '*.self_attn.*'\n");
  auto report_path = std::make_shared<std::string>();
  convert.value("SRC", "source", "checkpoint folder");
  convert.value("DST", "destination", "new folder");
  convert.value("--to", "target", "bf16 (default), fp16, fp32, fp8-block, fp8-tensor, fp8-channel");
  convert.value("--format", "format", "hf (default)");
  convert.list("--calibrate", "calibrate.data.paths", "text to compare source and result on");
  convert.value("--max-loss-delta", "calibrate.max_loss_delta", "gate of the calibration, 0.5% or 0.005");
  convert.app().add_option("--report", *report_path,
                           "write the report to this file: JSON, or a page when it ends in .html");
  convert.value("--threads", "threads", "0: all processors");
  convert.value("--memory", "memory_bytes", "buffers together, 128MiB");
  convert.entries("--assume", "assume", "answer an open question: block=128x128");
  convert.value("--rounding", "rounding", "fp32 (default) or fp64");
  convert.value("--nan", "nan_policy", "fail (default) or keep");
  convert.list("--only", "only", "convert only weights or modules that match this pattern; the rest stays quantised");
  convert.value("--proof", "proof", "standard (default), or full: SHA-256 of every tensor, histograms of codes");
  convert.flag("--remove-source", "remove_source", "true",
               "remove each source file once its result is verified and flushed (disks that cannot hold both)");
  convert.flag("--no-resume", "resume", "false", "begin anew where a killed run left finished files");
  convert.flag("--dry-run", "dry_run", "true", "classify and report, write nothing");
  convert.flag("--verify", "verify", "true", "re-read the result before it appears");
  convert.run([&context, report_path](const Message& config) {
    const Message report = run_work(context, invar_checkpoint_convert, config, "ConvertReport");
    if (report_path->ends_with(".html")) {
      write_file(*report_path, html_report(json::parse(report.json(false))));
    } else if (!report_path->empty()) {
      write_file(*report_path, report.json(true) + "\n");
    }
    show(context, report, print_convert);
    return is_true(report, "passed") ? kDone : kGateFailed;
  });

  auto& verify =
      add("verify", "prove a converted folder against its source again", "verify", "  invar verify fp8 bf16\n");
  verify.value("SRC", "source", "what was converted");
  verify.value("DST", "destination", "what came out");
  verify.value("--threads", "threads", "0: all processors");
  verify.entries("--assume", "assume", "as in convert");
  verify.value("--rounding", "rounding", "how it was made: fp32 (default) or fp64");
  verify.value("--nan", "nan_policy", "how it was made: fail (default) or keep");
  verify.list("--only", "only", "as in convert");
  verify.run([&context](const Message& config) {
    const Message report = run_work(context, invar_checkpoint_verify, config, "VerifyReport");
    show(context, report, print_verify);
    return is_true(report, "passed") ? kDone : kGateFailed;
  });

  auto& diff = add("diff", "compare two checkpoints in any formats", "diff",
                   "  invar diff a b\n  invar diff a b --tolerance 1e-3\n");
  diff.value("A", "a", "checkpoint");
  diff.value("B", "b", "checkpoint");
  diff.value("--names", "names", "only tensors whose name matches this pattern");
  diff.value("--tolerance", "tolerance", "largest |a - b| over the tensor's largest |a| that counts as equal");
  diff.value("--threads", "threads", "0: all processors");
  diff.run([&context](const Message& config) {
    const Message report = run_work(context, invar_checkpoint_diff, config, "DiffReport");
    show(context, report, print_diff);
    return is_true(report, "identical") ? kDone : kGateFailed;
  });

  auto& calibrate = add("calibrate", "loss, KL and agreement of two checkpoints on the same tokens", "calibrate",
                        "  invar calibrate fp8 bf16 --data heldout.txt\n");
  calibrate.value("SRC", "source", "the standard");
  calibrate.value("DST", "destination", "under test");
  calibrate.list("--data", "data.paths", "text files");
  calibrate.value("--max-loss-delta", "max_loss_delta", "gate, 0.5% or 0.005");
  calibrate.value("--max-kl", "max_kl", "gate on the mean KL divergence, nats");
  calibrate.value("--tokens", "max_tokens", "tokens to score, at most");
  calibrate.value("--sequence", "data.sequence_length", "tokens of one sequence");
  calibrate.value("--activations", "activations", "as-served (default) or weight-only");
  calibrate.value("--threads", "threads", "0: all processors");
  calibrate.run([&context](const Message& config) {
    const Message report = run_work(context, invar_checkpoint_calibrate, config, "CalibrateReport");
    show(context, report, print_calibrate);
    return is_true(report, "passed") ? kDone : kGateFailed;
  });

  auto& exported = add("export", "a training checkpoint as a serving folder", "export",
                       "  invar export run exported\n  invar export run fp8 --to fp8-block --bf16-copy\n");
  exported.value("DIR", "source", "run folder or one of its checkpoints");
  exported.value("DST", "destination", "new folder");
  exported.value("--to", "target", "bf16 (default), fp32, fp8-block, fp8-tensor, fp8-channel");
  exported.value("--format", "format", "hf (default)");
  exported.flag("--bf16-copy", "bf16_copy", "true", "a BF16 folder beside an FP8 one");
  exported.run([&context](const Message& config) {
    show(context, run_work(context, invar_checkpoint_export, config, "ExportReport"), print_export);
    return kDone;
  });

  auto& merge = add("merge", "fold a LoRA adapter (PEFT) into its base", "merge",
                    "  invar merge base adapter merged\n  invar merge base adapter half --weight 0.5\n");
  merge.value("BASE", "base", "the model the adapter was trained on; low-bit weights become BF16");
  merge.value("ADAPTER", "adapter", "folder with adapter_config.json");
  merge.value("DST", "destination", "new folder");
  merge.value("--weight", "weight", "multiplies the adapter's change (1)");
  merge.value("--threads", "threads", "0: all processors");
  merge.run([&context](const Message& config) {
    show(context, run_work(context, invar_checkpoint_merge, config, "MergeReport"), print_merge);
    return kDone;
  });
}

}  // namespace cli
