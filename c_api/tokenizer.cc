// Tokenizers and chat templates: thin handles over core/text.
#include <chrono>
#include <ctime>

#include "c_api/internal/work.h"
#include "core/text/chat.h"
#include "core/text/preview.h"
#include "core/text/tokenizer.h"
#include "core/text/train_tokenizer.h"
#include "core/text/utf8.h"
#include "core/train/setup.h"
#include "invar/v1/text.pb.h"

namespace v1 = invar::v1;
using invar::Code;
using invar::Error;
using invar::Result;
using invar::Status;
using invar::abi::entry;
using invar::abi::Outcome;
using invar::abi::Progress;

struct invar_tokenizer {
  std::shared_ptr<invar::abi::RuntimeState> runtime;
  std::shared_ptr<const invar::Tokenizer> tokenizer;
  std::shared_ptr<const invar::ChatTemplate> chat;  // null: none
};

namespace {

Status unknown_flags(const char* function, uint32_t flags, uint32_t known) {
  if ((flags & ~known) == 0) return {};
  return Error(Code::kInvalidArgument, "argument.flags",
               invar::cat(function, ": flags ", flags, " hold bits that this library does not know"));
}

Result<invar::chat::Value> value_field(std::string_view name, const std::string& text) {
  auto value = invar::chat::value_of_json(text);
  if (!value.ok()) return value.status().with_context(name);
  return value;
}

Result<std::string> render(const invar_tokenizer& tokenizer, const v1::ChatConfig& config) {
  auto chat = tokenizer.chat;
  if (!config.template_path().empty()) {
    INVAR_ASSIGN(const std::string source,
                 invar::read_text(tokenizer.runtime->files(), config.template_path(), int64_t{16} << 20));
    auto parsed = invar::chat_template_from(source, *tokenizer.tokenizer);
    if (!parsed.ok()) return parsed.status().with_context(config.template_path());
    chat = *std::move(parsed);
  }
  if (chat == nullptr) {
    return Error(Code::kFailedPrecondition, "template.none",
                 "the tokenizer came without a chat template; give template_path");
  }
  invar::ChatOptions options;
  options.add_generation_prompt = config.add_generation_prompt();
  options.unix_time = static_cast<int64_t>(std::time(nullptr));
  INVAR_ASSIGN(const auto messages, value_field("messages_json", config.messages_json()));
  if (!messages.is_list()) {
    return Error(Code::kInvalidArgument, "config.wrong_type", "messages_json: expected a JSON list");
  }
  if (!config.tools_json().empty()) {
    INVAR_ASSIGN(options.tools, value_field("tools_json", config.tools_json()));
  }
  if (!config.variables_json().empty()) {
    INVAR_ASSIGN(const auto variables, value_field("variables_json", config.variables_json()));
    if (!variables.is_dict()) {
      return Error(Code::kInvalidArgument, "config.wrong_type", "variables_json: expected a JSON object");
    }
    options.variables = variables.entries();
  }
  INVAR_ASSIGN(auto rendered, chat->render(messages, options));
  return std::move(rendered.text);
}

invar::DocumentOptions documents_of(const v1::TokenizerTrainConfig& config) {
  invar::DocumentOptions options;
  if (config.format() == v1::DATA_FORMAT_TEXT) options.format = invar::TextFormat::kText;
  if (config.format() == v1::DATA_FORMAT_JSONL) options.format = invar::TextFormat::kJsonl;
  options.text_key = config.text_key();
  return options;
}

Result<v1::TokenizerTrainReport> train(const v1::TokenizerTrainConfig& config, invar::FileSystem& files,
                                       Progress& progress) {
  if (config.paths_size() == 0) {
    return Error(Code::kInvalidArgument, "config.missing_field", "paths: must be given: a list of files");
  }
  const auto start = std::chrono::steady_clock::now();
  invar::BpeTrainerOptions options;
  options.vocab_size = config.vocab_size();
  options.min_frequency = config.min_frequency();
  if (config.special_tokens_size() > 0) {
    options.special_tokens.assign(config.special_tokens().begin(), config.special_tokens().end());
  }
  INVAR_ASSIGN(
      const auto trained,
      invar::train_tokenizer(files, {config.paths().begin(), config.paths().end()}, documents_of(config), options,
                             {.cancel = progress.flag(), .progress = [&](int64_t tokens, int64_t all) {
                                progress.work("tokenizer", config.output(), "tokens", tokens, all);
                              }}));
  INVAR_TRY(invar::save_trained_tokenizer(trained, files, config.output()));
  v1::TokenizerTrainReport report;
  report.set_output(config.output());
  report.set_vocab_size(trained.vocab_size);
  report.set_merges(trained.merges);
  report.set_documents(trained.documents);
  report.set_bytes(trained.bytes);
  report.set_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (trained.vocab_size < config.vocab_size()) {
    report.add_warnings(invar::cat("the text gives ", trained.vocab_size, " tokens, not ", config.vocab_size(),
                                   ": no pair is left to join"));
  }
  return report;
}

}  // namespace

invar_status* invar_tokenizer_load(invar_runtime* runtime, const char* path, size_t path_size,
                                   invar_tokenizer** tokenizer) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (tokenizer != nullptr) *tokenizer = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_TEXT(name, path, path_size);
    INVAR_REQUIRE(tokenizer);
    if (name.empty()) return Error(Code::kInvalidArgument, "argument.empty", invar::cat(function, ": path is empty"));
    auto made = std::make_unique<invar_tokenizer>();
    made->runtime = runtime->runtime;
    INVAR_ASSIGN(made->tokenizer, invar::load_tokenizer(runtime->runtime->files(), std::string(name)));
    // A template that is not supported is told when it is used.
    if (auto chat = invar::chat_template_of(*made->tokenizer); chat.ok()) made->chat = *std::move(chat);
    *tokenizer = made.release();
    return {};
  });
}

invar_status* invar_tokenizer_info(invar_tokenizer* tokenizer, invar_bytes** info) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (info != nullptr) *info = nullptr;
    INVAR_HANDLE(tokenizer);
    INVAR_REQUIRE(info);
    const invar::Tokenizer& of = *tokenizer->tokenizer;
    v1::TokenizerInfo out;
    out.set_vocab_size(of.vocab_size());
    if (of.bos_id() >= 0) out.set_bos_id(of.bos_id());
    if (of.eos_id() >= 0) out.set_eos_id(of.eos_id());
    if (of.pad_id() >= 0) out.set_pad_id(of.pad_id());
    out.set_chat_template(tokenizer->chat != nullptr);
    INVAR_ASSIGN(*info, invar::abi::make_bytes(out.SerializeAsString()));
    return {};
  });
}

invar_status* invar_tokenizer_encode(invar_tokenizer* tokenizer, const char* text, size_t text_size, uint32_t flags,
                                     invar_bytes** ids) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (ids != nullptr) *ids = nullptr;
    INVAR_HANDLE(tokenizer);
    INVAR_TEXT(input, text, text_size);
    INVAR_REQUIRE(ids);
    INVAR_TRY(
        unknown_flags(function, flags, INVAR_ENCODE_ADD_SPECIAL | INVAR_ENCODE_PARSE_SPECIAL | INVAR_ENCODE_TRUNCATE));
    if (!invar::valid_utf8(input)) {
      return Error(Code::kInvalidArgument, "text.bad_utf8", invar::cat(function, ": text is not valid utf-8"));
    }
    const std::vector<int32_t> encoded =
        tokenizer->tokenizer->encode(input, {.add_special = (flags & INVAR_ENCODE_ADD_SPECIAL) != 0,
                                             .parse_special = (flags & INVAR_ENCODE_PARSE_SPECIAL) != 0,
                                             .truncate = (flags & INVAR_ENCODE_TRUNCATE) != 0});
    INVAR_ASSIGN(*ids, invar::abi::make_bytes(std::string(reinterpret_cast<const char*>(encoded.data()),
                                                          encoded.size() * sizeof(int32_t))));
    return {};
  });
}

invar_status* invar_tokenizer_decode(invar_tokenizer* tokenizer, const int32_t* ids, size_t count, uint32_t flags,
                                     invar_bytes** text) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (text != nullptr) *text = nullptr;
    INVAR_HANDLE(tokenizer);
    if (ids == nullptr && count > 0) return invar::abi::null_argument(function, "ids");
    INVAR_REQUIRE(text);
    INVAR_TRY(unknown_flags(function, flags, INVAR_DECODE_SKIP_SPECIAL | INVAR_DECODE_BYTES));
    INVAR_ASSIGN(std::string decoded,
                 tokenizer->tokenizer->decode({ids, count}, (flags & INVAR_DECODE_SKIP_SPECIAL) != 0));
    if ((flags & INVAR_DECODE_BYTES) == 0) decoded = invar::lossy_utf8(decoded);
    INVAR_ASSIGN(*text, invar::abi::make_bytes(std::move(decoded)));
    return {};
  });
}

invar_status* invar_tokenizer_chat(invar_tokenizer* tokenizer, const void* config, size_t config_size,
                                   invar_bytes** text) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (text != nullptr) *text = nullptr;
    INVAR_HANDLE(tokenizer);
    INVAR_REQUIRE(text);
    INVAR_ASSIGN(const auto checked, invar::abi::config_from<v1::ChatConfig>(function, config, config_size));
    if (tokenizer->chat == nullptr && checked.template_path().empty()) {
      // Tells why there is none.
      const auto own = invar::chat_template_of(*tokenizer->tokenizer);
      if (!own.ok()) return own.status();
    }
    INVAR_ASSIGN(std::string rendered, render(*tokenizer, checked));
    INVAR_ASSIGN(*text, invar::abi::make_bytes(std::move(rendered)));
    return {};
  });
}

invar_status* invar_tokenizer_train(invar_runtime* runtime, const void* config, size_t config_size,
                                    invar_cancel* cancel, const invar_progress_callback* progress,
                                    invar_bytes** report) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (report != nullptr) *report = nullptr;
    INVAR_HANDLE(runtime);
    return invar::abi::run_work<v1::TokenizerTrainConfig>(function, config, config_size, cancel, progress, report,
                                                          [&](const v1::TokenizerTrainConfig& checked, Progress& on) {
                                                            return train(checked, runtime->runtime->files(), on);
                                                          });
  });
}

invar_status* invar_data_preview(invar_runtime* runtime, const void* config, size_t config_size, invar_cancel* cancel,
                                 const invar_progress_callback* progress, invar_bytes** report) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (report != nullptr) *report = nullptr;
    INVAR_HANDLE(runtime);
    return invar::abi::run_work<v1::PreviewConfig>(
        function, config, config_size, cancel, progress, report,
        [&](const v1::PreviewConfig& checked, Progress& on) -> Result<v1::PreviewReport> {
          invar::FileSystem& files = runtime->runtime->files();
          INVAR_ASSIGN(const auto tokenizer, invar::tokenizer_of(checked.data().tokenizer(), checked.model(), files));
          return invar::preview_data(checked, *tokenizer, files, on.flag());
        });
  });
}

void invar_tokenizer_release(invar_tokenizer* tokenizer) noexcept { invar::abi::release_handle(tokenizer); }
