// data preview.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tools/cli/command.h"

namespace cli {

namespace {

using nlohmann::json;

// Trained tokens stand in green, the others dim; without colour, trained ones stand between marks.
class Marks {
 public:
  explicit Marks(bool colour) : colour_(colour) {}
  void print(const json& tokens) {
    bool trained = false, open = false;
    for (const json& token : tokens) {
      const bool now = token.value("trained", false);
      if (!open || now != trained) {
        if (open) std::printf("%s", close(trained));
        std::printf("%s", now ? begin_trained() : begin_ignored());
      }
      open = true;
      trained = now;
      std::printf("%s", visible(token.value("text", "")).c_str());
    }
    if (open) std::printf("%s", close(trained));
    std::printf("\n");
  }

 private:
  const char* begin_trained() const { return colour_ ? "\033[32m" : "[["; }
  const char* begin_ignored() const { return colour_ ? "\033[2m" : ""; }
  const char* close(bool trained) const { return colour_ ? "\033[0m" : trained ? "]]" : ""; }
  // Line ends stay, other controls become visible.
  static std::string visible(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') {
        char code[8];
        std::snprintf(code, sizeof code, "\\x%02X", static_cast<unsigned char>(c));
        out += code;
      } else {
        out += c;
      }
    }
    return out;
  }
  bool colour_;
};

void print_preview(const json& report) {
  const bool colour = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  if (report.contains("samples")) {
    for (const json& sample : report["samples"]) {
      const size_t shown = sample.contains("shown") ? sample["shown"].size() : 0;
      std::printf("--- %s: %lld tokens%s\n", text(sample, "source").c_str(), integer(sample, "tokens"),
                  static_cast<long long>(shown) < integer(sample, "tokens") ? ", the first of them" : "");
      if (shown > 0) Marks(colour).print(sample["shown"]);
    }
  }
  std::printf("%s%lld documents, %lld empty, %lld tokens, %lld of them trained; %lld sequences, %lld held out\n",
              colour ? "" : "[[ ]] trained. ", integer(report, "documents"), integer(report, "empty_documents"),
              integer(report, "tokens"), integer(report, "trained_tokens"), integer(report, "sequences"),
              integer(report, "heldout_sequences"));
  print_warnings(report);
}

}  // namespace

void add_data_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands) {
  CLI::App* group = app.add_subcommand("data", "training data as training sees it");
  group->require_subcommand(1);
  commands.push_back(std::make_unique<Command>(
      *group, context, "preview", "the first samples, token by token, with what is trained", "PreviewConfig",
      "  invar data preview --data chats.jsonl --model model/\n"
      "  invar data preview --data a.jsonl data.loss=all data.sequence_length=2048 --samples 10\n"));
  Command& preview = *commands.back();
  preview.list("--data", "data.paths", "data file; repeat for several");
  preview.value("--model", "model", "model folder whose tokenizer reads the data");
  preview.value("--tokenizer", "data.tokenizer.path", "tokenizer.json to use instead");
  preview.value("--chat-template", "data.chat_template", "chat template file to use instead of the tokenizer's");
  preview.value("--samples", "samples", "documents to show (3)");
  preview.value("--max-tokens", "max_tokens", "tokens to show of each (512)");
  preview.run([&context](const Message& config) {
    show(context, run_work(context, invar_data_preview, config, "PreviewReport"), print_preview);
    return kDone;
  });
}

}  // namespace cli
