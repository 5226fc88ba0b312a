// bench train | parity | convert | gemm | adamw | attention | generate: prints what the library measures.
#include <cstdio>

#include "tools/cli/command.h"

namespace cli {

namespace {

using nlohmann::json;

void print_bench(const json& report) {
  std::printf("%s", text(report, "kind").c_str());
  if (!text(report, "shape").empty()) std::printf(" %s", text(report, "shape").c_str());
  if (!text(report, "recipe").empty()) std::printf(" %s", text(report, "recipe").c_str());
  std::printf(", %lld threads: best %.4g s, median %.4g s of %lld\n", integer(report, "threads"),
              number(report, "seconds_best"), number(report, "seconds_median"), integer(report, "repeats"));
  if (report.contains("tokens_per_second")) {
    std::printf("%.1f tokens/s (median %.1f)\n", number(report, "tokens_per_second"),
                number(report, "tokens_per_second_median"));
  }
  if (report.contains("first_step_seconds")) {
    std::printf("first step done after %.3f s, %.0f MB resident\n", number(report, "first_step_seconds"),
                number(report, "resident_bytes") / 1e6);
  }
  if (report.contains("gflops")) std::printf("%.1f GFLOP/s\n", number(report, "gflops"));
  if (report.contains("gbytes_per_second")) std::printf("%.2f GB/s\n", number(report, "gbytes_per_second"));
  if (report.contains("limits")) {
    for (const json& limit : report["limits"]) {
      std::printf("  %-28s %.1f of %.1f %s: %.0f%%\n", text(limit, "name").c_str(), number(limit, "achieved"),
                  number(limit, "limit"), text(limit, "unit").c_str(), 100 * number(limit, "share"));
    }
  }
  if (report.contains("profile")) {
    for (const json& line : report["profile"]) {
      std::printf("  %-28s %8lld calls  %9.4f s  %5.1f%%", text(line, "name").c_str(), integer(line, "calls"),
                  number(line, "seconds"), 100 * number(line, "share"));
      if (line.contains("gflops")) std::printf("  %7.1f GFLOP/s", number(line, "gflops"));
      std::printf("\n");
    }
  }
  if (integer(report, "steps") > 0) {
    std::printf("loss %.6f -> %.6f over %lld steps", number(report, "first_loss"), number(report, "last_loss"),
                integer(report, "steps"));
    if (report.contains("eval_loss")) std::printf(", evaluation %.6f", number(report, "eval_loss"));
    std::printf("\n");
  }
  if (!text(report, "out").empty()) std::printf("curve: %s\n", text(report, "out").c_str());
  if (report.contains("notes")) {
    for (const json& note : report["notes"]) std::printf("note: %s\n", note.get<std::string>().c_str());
  }
}

}  // namespace

void add_bench_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands) {
  CLI::App* bench = app.add_subcommand("bench", "measure this machine");
  bench->require_subcommand(1);
  const auto add = [&](const char* name, const char* description, const char* examples) -> Command& {
    commands.push_back(std::make_unique<Command>(*bench, context, name, description, "bench", examples));
    Command& command = *commands.back();
    const std::string kind = name;
    command.value("--threads", "threads", "0: all processors");
    command.value("--repeats", "repeats", "measured repetitions; 0: the benchmark's own number");
    command.run([&context, kind](Message config) {
      config.set("kind", kind);
      show(context, run_work(context, invar_bench_run, config, "BenchReport"), print_bench);
      return kDone;
    });
    return command;
  };

  auto& train =
      add("train", "training tokens a second",
          "  invar bench train --shape smollm2-135m --recipe bf16 --sequence 512 --micro-batch 4 --threads 2\n");
  train.value("--shape", "shape", "tiny (default) or smollm2-135m");
  train.value("--recipe", "recipe", "fp32, bf16 (default), fp8_tensor, fp8_block");
  train.value("--sequence", "sequence_length", "tokens of one sequence");
  train.value("--micro-batch", "micro_batch", "sequences in one pass");

  auto& parity = add("parity", "train a recorded run again and write its curve",
                     "  invar bench parity --reference baselines/parity --recipe bf16 --out curve.json\n");
  parity.value("--reference", "reference", "folder of the recorded run");
  parity.value("--recipe", "recipe", "fp32, bf16 (default), fp8_tensor, fp8_block");
  parity.value("--out", "out", "file for the curve");
  parity.value("--steps", "steps", "0: all");

  auto& convert =
      add("convert", "conversion rate", "  invar bench convert\n  invar bench convert --source DIR --scratch DIR\n");
  convert.value("--source", "source", "checkpoint; made when absent");
  convert.value("--scratch", "scratch", "folder for what is written");
  convert.value("--bytes", "bytes", "size of the checkpoint that is made, 512MiB");

  auto& gemm = add("gemm", "matrix products", "  invar bench gemm --rows 512 --cols 1536 --inner 576\n");
  gemm.value("--recipe", "recipe", "fp32 or bf16 (default)");
  gemm.value("--rows", "rows", "of the result");
  gemm.value("--cols", "cols", "of the result");
  gemm.value("--inner", "inner", "length of the sums");

  auto& adamw = add("adamw", "the optimizer's pass over memory", "  invar bench adamw --elements 134000000\n");
  adamw.value("--elements", "elements", "of all parameters");

  auto& attention = add("attention", "attention, forward and backward", "  invar bench attention --sequence 2048\n");
  attention.value("--sequence", "sequence_length", "tokens of one sequence");
  attention.value("--micro-batch", "micro_batch", "sequences");
  attention.value("--heads", "heads", "query heads");
  attention.value("--kv-heads", "kv_heads", "key heads");
  attention.value("--head-dim", "head_dim", "elements of a head");

  auto& generate = add("generate", "generated tokens a second",
                       "  invar bench generate --shape smollm2-135m --sequence 256 --repeats 128 --threads 2\n"
                       "  invar bench generate --source DIR\n");
  generate.value("--shape", "shape", "tiny (default) or smollm2-135m");
  generate.value("--source", "source", "model folder instead of a shape");
  generate.value("--recipe", "recipe", "fp32 or bf16 (default)");
  generate.value("--sequence", "sequence_length", "tokens of the context");
}

}  // namespace cli
