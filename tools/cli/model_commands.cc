// train, eval, generate.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/cli/command.h"

namespace cli {

namespace {

using nlohmann::json;

void print_train(const json& report) {
  std::printf("%s: %lld steps, %s tokens, %s parameters, %s (%.0f tokens/s)\n",
              text(report, "output").empty() ? "run" : text(report, "output").c_str(), integer(report, "steps"),
              count_text(integer(report, "total_tokens")).c_str(), count_text(integer(report, "parameters")).c_str(),
              duration_text(number(report, "seconds")).c_str(), number(report, "tokens_per_second"));
  if (integer(report, "resumed_from_step") > 0)
    std::printf("resumed from step %lld\n", integer(report, "resumed_from_step"));
  std::printf("loss %.4f -> %.4f (mean of the last 20 steps: %.4f)\n", number(report, "first_loss"),
              number(report, "last_loss"), number(report, "tail_loss"));
  if (report.contains("final_eval")) {
    const json& eval = report["final_eval"];
    std::printf("held-out loss %.4f, perplexity %.3f (best loss %.4f)\n", number(eval, "loss"),
                number(eval, "perplexity"), number(report, "best_eval_loss"));
  }
  if (report.contains("recipes") && report["recipes"].size() > 1) {
    for (const json& span : report["recipes"]) {
      std::printf("steps %lld to %lld: %s (%s)\n", integer(span, "first_step"), integer(span, "last_step"),
                  text(span, "recipe").c_str(), text(span, "reason").c_str());
    }
  }
  if (integer(report, "skipped_steps") > 0) std::printf("skipped steps: %lld\n", integer(report, "skipped_steps"));
  if (!text(report, "checkpoint").empty()) std::printf("checkpoint: %s\n", text(report, "checkpoint").c_str());
  if (report.contains("exports")) {
    for (const json& path : report["exports"]) std::printf("export: %s\n", path.get<std::string>().c_str());
  }
  if (!text(report, "metrics_file").empty()) std::printf("metrics: %s\n", text(report, "metrics_file").c_str());
  print_warnings(report);
}

void print_eval(const json& report) {
  std::printf("loss %.6f nats a token, perplexity %.4f", number(report, "loss"), number(report, "perplexity"));
  if (report.contains("bits_per_byte")) std::printf(", %.4f bits a byte", number(report, "bits_per_byte"));
  std::printf("\n%s tokens in %s sequences, %s (%.0f tokens/s)\n", count_text(integer(report, "tokens")).c_str(),
              count_text(integer(report, "sequences")).c_str(), duration_text(number(report, "seconds")).c_str(),
              number(report, "tokens_per_second"));
  print_warnings(report);
}

int train(Context& context, const Message& config) {
  config.check();
  ProgressLine line(context.quiet);
  const invar_progress_callback callback = line.callback();
  invar_session* made = nullptr;
  check(invar_session_create(context.runtime.get(), config.data(), config.size(), context.cancel.get(), &callback,
                             &made));
  const Owned<invar_session> session(made);
  invar_bytes* report = nullptr;
  invar_status* status = invar_session_run(session.get(), context.cancel.get(), &callback, &report);
  line.finish();
  const bool cancelled = invar_status_code(status) == INVAR_CANCELLED;
  if (cancelled) {
    invar_status_release(status);
    check(invar_session_report(session.get(), &report));
  } else {
    check(status);
  }
  show(context, Message(context.runtime.get(), "TrainReport", take(report)), print_train);
  if (!cancelled) return kDone;
  std::fprintf(stderr, "invar: interrupted; resume=auto continues this run\n");
  return kInterrupted;
}

// The LoadConfig inside an eval or generate config.
Message load_config(Context& context, const Message& config) {
  const json whole = json::parse(config.json(false));
  const json model = whole.value("model", json::object());
  if (text(model, "path").empty()) throw Failure(kUsage, "model.path: must be given: --model DIR");
  return Message::from_json(context.runtime.get(), "LoadConfig", model.dump());
}

Owned<invar_model> load_model(Context& context, const Message& load) {
  invar_model* model = nullptr;
  check(invar_model_load(context.runtime.get(), load.data(), load.size(), context.cancel.get(), nullptr, &model));
  return Owned<invar_model>(model);
}

int evaluate(Context& context, const Message& config) {
  config.check();
  Message load = load_config(context, config);
  const json full = json::parse(config.with_defaults().json(false));
  if (integer(full["model"], "max_sequence_length") == 0) {
    load.set("max_sequence_length", std::to_string(integer(full["data"], "sequence_length")));
  }
  const auto model = load_model(context, load);
  ProgressLine line(context.quiet);
  const invar_progress_callback callback = line.callback();
  invar_bytes* report = nullptr;
  invar_status* status =
      invar_model_evaluate(model.get(), config.data(), config.size(), context.cancel.get(), &callback, &report);
  line.finish();
  check(status);
  show(context, Message(context.runtime.get(), "EvalReport", take(report)), print_eval);
  return kDone;
}

int generate(Context& context, const Message& config) {
  config.check();
  const auto model = load_model(context, load_config(context, config));
  const json given = json::parse(config.json(false));
  invar_token_callback callback = INVAR_TOKEN_CALLBACK_INIT;
  callback.call = [](void*, const invar_token* token) -> int32_t {
    std::fwrite(token->text, 1, token->text_size, stdout);
    return std::fflush(stdout) == 0 ? 0 : 1;
  };
  // Text streams as it comes; a script gets the report alone.
  if (!context.json) std::printf("%s", text(given, "prompt").c_str());
  invar_bytes* report = nullptr;
  invar_status* status = invar_model_generate(model.get(), config.data(), config.size(), context.cancel.get(),
                                              context.json ? nullptr : &callback, &report);
  if (!context.json) std::printf("\n");
  check(status);
  const Message result(context.runtime.get(), "GenerateReport", take(report));
  show(context, result, [&](const json& done) {
    if (!context.quiet) {
      std::fprintf(stderr, "%zu tokens after %lld of the prompt, %.1f tokens/s, ended by %s\n",
                   done.contains("ids") ? done["ids"].size() : 0, integer(done, "prompt_tokens"),
                   number(done, "tokens_per_second"), text(done, "finish_reason").c_str());
    }
  });
  return kDone;
}

}  // namespace

void add_model_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands) {
  const auto add = [&](const char* name, const char* description, const char* type, const char* examples) -> Command& {
    commands.push_back(std::make_unique<Command>(app, context, name, description, type, examples));
    return *commands.back();
  };

  auto& training = add("train", "train, fine-tune or resume", "train",
                       "  invar train --config run.yaml\n"
                       "  invar train --config run.yaml optimizer.lr=3e-4 steps=1000\n"
                       "  invar train --config run.yaml resume=auto\n"
                       "  invar train output=run data.paths+=text.txt precision.recipe=fp8_block\n");
  training.value("--threads", "threads", "0: all processors");
  training.value("--output", "output", "folder of the run");
  training.value("--steps", "steps", "optimizer steps of the whole run");
  training.run([&context](const Message& config) { return train(context, config); });

  auto& eval = add("eval", "token loss and perplexity of text", "eval",
                   "  invar eval --model DIR --data heldout.txt\n"
                   "  invar eval --model DIR --data a.jsonl --sequence 1024 --json\n");
  eval.value("--model", "model.path", "model folder");
  eval.list("--data", "data.paths", "text files");
  eval.value("--sequence", "data.sequence_length", "tokens of one sequence");
  eval.value("--tokens", "max_tokens", "tokens to score, at most");
  eval.value("--micro-batch", "micro_batch", "sequences in one pass");
  eval.value("--recipe", "model.recipe", "bf16 (default) or fp32");
  eval.run([&context](const Message& config) { return evaluate(context, config); });

  auto& generation = add("generate", "continue a text", "generate",
                         "  invar generate --model DIR --prompt 'And God said'\n"
                         "  invar generate --model DIR --prompt Once --tokens 200 --temperature 0.8 --seed 7\n");
  generation.value("--model", "model.path", "model folder");
  generation.value("--prompt", "prompt", "text to continue");
  generation.value("--tokens", "max_tokens", "tokens to generate, at most");
  generation.value("--temperature", "temperature", "0 (default) takes the most likely token");
  generation.value("--top-k", "top_k", "only the k most likely tokens");
  generation.value("--top-p", "top_p", "only the most likely tokens of this total probability");
  generation.value("--seed", "seed", "of the random choice");
  generation.value("--recipe", "model.recipe", "bf16 (default) or fp32");
  generation.run([&context](const Message& config) { return generate(context, config); });
}

}  // namespace cli
