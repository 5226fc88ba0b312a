// tokenizer encode, tokenizer decode, tokenizer chat, tokenizer train.
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>

#include "tools/cli/command.h"

namespace cli {

namespace {

using nlohmann::json;

struct TextOptions {
  std::string tokenizer, messages = "-", tools, variables, chat_template;
  bool no_special = false, jsonl = false, generation_prompt = false;
};

Owned<invar_tokenizer> load(Context& context, const std::string& path) {
  invar_tokenizer* tokenizer = nullptr;
  check(invar_tokenizer_load(context.runtime.get(), path.data(), path.size(), &tokenizer));
  return Owned<invar_tokenizer>(tokenizer);
}

std::vector<int32_t> encode(invar_tokenizer* tokenizer, const std::string& text, bool no_special) {
  const uint32_t flags =
      INVAR_ENCODE_PARSE_SPECIAL | INVAR_ENCODE_TRUNCATE | (no_special ? 0 : INVAR_ENCODE_ADD_SPECIAL);
  invar_bytes* bytes = nullptr;
  check(invar_tokenizer_encode(tokenizer, text.data(), text.size(), flags, &bytes));
  const std::string raw = take(bytes);
  std::vector<int32_t> ids(raw.size() / sizeof(int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), raw.data(), raw.size());
  return ids;
}

std::string decode(invar_tokenizer* tokenizer, const std::vector<int32_t>& ids, bool no_special) {
  invar_bytes* bytes = nullptr;
  check(invar_tokenizer_decode(tokenizer, ids.data(), ids.size(), no_special ? INVAR_DECODE_SKIP_SPECIAL : 0, &bytes));
  return take(bytes);
}

std::string all_input() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

Failure bad_line(long long line, const std::string& expected) {
  return {kBadInput, "standard input:" + std::to_string(line) + ": expected " + expected};
}

// Calls work(the line as JSON, its number) for every line of standard input.
template <typename Work>
void for_each_line(Work work) {
  std::string line;
  for (long long number = 1; std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    json value;
    try {
      value = json::parse(line);
    } catch (const json::exception&) {
      throw bad_line(number, "one JSON value in the line");
    }
    work(value, number);
  }
}

int run_encode(Context& context, const TextOptions& options) {
  const auto tokenizer = load(context, options.tokenizer);
  if (options.jsonl) {
    for_each_line([&](const json& value, long long line) {
      if (!value.is_string()) throw bad_line(line, "a JSON string");
      std::printf("%s\n", json(encode(tokenizer.get(), value.get<std::string>(), options.no_special)).dump().c_str());
    });
    return kDone;
  }
  const std::vector<int32_t> ids = encode(tokenizer.get(), all_input(), options.no_special);
  if (context.json) {
    std::printf("%s\n", json{{"ids", ids}}.dump().c_str());
    return kDone;
  }
  for (size_t i = 0; i < ids.size(); ++i) std::printf("%s%d", i > 0 ? " " : "", ids[i]);
  std::printf("\n");
  return kDone;
}

std::vector<int32_t> ids_of(const json& value, long long line) {
  if (!value.is_array()) throw bad_line(line, "a JSON array of ids");
  std::vector<int32_t> ids;
  for (const json& id : value) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) throw bad_line(line, "ids, whole numbers from 0 on");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

int run_decode(Context& context, const TextOptions& options) {
  const auto tokenizer = load(context, options.tokenizer);
  if (options.jsonl) {
    for_each_line([&](const json& value, long long line) {
      std::printf("%s\n", json(decode(tokenizer.get(), ids_of(value, line), options.no_special)).dump().c_str());
    });
    return kDone;
  }
  std::vector<int32_t> ids;
  std::string word;
  while (std::cin >> word) {
    char* end = nullptr;
    const long long id = std::strtoll(word.c_str(), &end, 10);
    if (*end != '\0' || id < 0 || id > INT32_MAX) {
      throw Failure(kBadInput, "standard input: \"" + word + "\" is no token id");
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  const std::string text = decode(tokenizer.get(), ids, options.no_special);
  if (context.json) {
    std::printf("%s\n", json{{"text", text}}.dump().c_str());
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::printf("\n");
  }
  return kDone;
}

std::string file_text(const std::string& path) {
  if (path == "-") return all_input();
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) throw Failure(kIo, path + ": " + std::strerror(errno));
  std::string text;
  char block[1 << 16];
  size_t count = 0;
  while ((count = std::fread(block, 1, sizeof block, file)) > 0) text.append(block, count);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) throw Failure(kIo, path + ": cannot be read");
  return text;
}

int run_chat(Context& context, const TextOptions& options) {
  const auto tokenizer = load(context, options.tokenizer);
  json config = {{"messages_json", file_text(options.messages)}, {"add_generation_prompt", options.generation_prompt}};
  if (!options.tools.empty()) config["tools_json"] = file_text(options.tools);
  if (!options.variables.empty()) config["variables_json"] = options.variables;
  if (!options.chat_template.empty()) config["template_path"] = options.chat_template;
  const Message message = Message::from_json(context.runtime.get(), "ChatConfig", config.dump());
  invar_bytes* bytes = nullptr;
  check(invar_tokenizer_chat(tokenizer.get(), message.data(), message.size(), &bytes));
  const std::string text = take(bytes);
  if (context.json) {
    std::printf("%s\n", json{{"text", text}}.dump().c_str());
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  return kDone;
}

void print_training(const json& report) {
  std::printf("%s: %lld tokens, %lld merges, from %lld bytes in %lld documents, %s\n", text(report, "output").c_str(),
              integer(report, "vocab_size"), integer(report, "merges"), integer(report, "bytes"),
              integer(report, "documents"), duration_text(number(report, "seconds")).c_str());
  print_warnings(report);
}

}  // namespace

void add_tokenizer_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands) {
  CLI::App* group = app.add_subcommand("tokenizer", "text to token ids and back, chat templates, new vocabularies");
  group->require_subcommand(1);
  const auto add = [&](const char* name, const char* description, const char* type, const char* examples) -> Command& {
    commands.push_back(std::make_unique<Command>(*group, context, name, description, type, examples));
    return *commands.back();
  };
  const auto options = std::make_shared<TextOptions>();
  const auto common = [&](Command& command) {
    command.app()
        .add_option("--tokenizer", options->tokenizer, "tokenizer.json, or a model folder that holds one")
        ->required();
  };

  auto& encoder = add("encode", "standard input to ids", "",
                      "  echo -n 'In the beginning' | invar tokenizer encode --tokenizer model/\n"
                      "  invar tokenizer encode --tokenizer tokenizer.json --jsonl < strings.jsonl\n");
  common(encoder);
  encoder.app().add_flag("--no-special", options->no_special, "without what the tokenizer puts around a text");
  encoder.app().add_flag("--jsonl", options->jsonl, "one JSON string a line in, one JSON array a line out");
  encoder.run([&context, options](const Message&) { return run_encode(context, *options); });

  auto& decoder = add("decode", "ids on standard input to text", "",
                      "  echo 1 2 3 | invar tokenizer decode --tokenizer model/\n"
                      "  invar tokenizer decode --tokenizer tokenizer.json --jsonl --no-special < ids.jsonl\n");
  common(decoder);
  decoder.app().add_flag("--no-special", options->no_special, "special tokens are left out");
  decoder.app().add_flag("--jsonl", options->jsonl, "one JSON array a line in, one JSON string a line out");
  decoder.run([&context, options](const Message&) { return run_decode(context, *options); });

  auto& chat = add("chat", "a conversation as the model's chat template writes it", "",
                   "  invar tokenizer chat --tokenizer model/ --messages talk.json --generation-prompt\n");
  common(chat);
  chat.app().add_option("--messages", options->messages, "JSON list of messages; - (default) reads standard input");
  chat.app().add_option("--tools", options->tools, "file with a JSON list of functions");
  chat.app().add_option("--variables", options->variables, "JSON object with further variables");
  chat.app().add_option("--template", options->chat_template, "template file to use instead of the model's");
  chat.app().add_flag("--generation-prompt", options->generation_prompt, "end with what the reply begins with");
  chat.run([&context, options](const Message&) { return run_chat(context, *options); });

  auto& training = add("train", "a byte-level vocabulary learned from text", "TokenizerTrainConfig",
                       "  invar tokenizer train --data corpus.txt --size 8192 --out tokenizer.json\n"
                       "  invar tokenizer train --data a.jsonl --data b.txt --size 32768 --out my_tokenizer/\n");
  training.list("--data", "paths", "text or JSONL file; repeat for several");
  training.value("--size", "vocab_size", "tokens, with the 256 bytes and the special tokens (8192)");
  training.value("--out", "output", "file for the tokenizer.json, or a folder");
  training.value("--min-frequency", "min_frequency", "pairs that occur less often are not joined (0)");
  training.list("--special", "special_tokens", "special token; repeat for several (<|endoftext|>)");
  training.value("--text-key", "text_key", "key of the text in JSONL (text)");
  training.run([&context](const Message& config) {
    show(context, run_work(context, invar_tokenizer_train, config, "TokenizerTrainReport"), print_training);
    return kDone;
  });
}

}  // namespace cli
