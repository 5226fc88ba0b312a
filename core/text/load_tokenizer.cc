// Which files make a tokenizer, and which class reads them.
#include "core/text/byte_tokenizer.h"
#include "core/text/pipeline/pipeline_tokenizer.h"
#include "core/text/sentencepiece/sentencepiece_tokenizer.h"
#include "core/text/tokenizer.h"

namespace invar {
namespace {

constexpr int64_t kMaxBytes = int64_t{256} << 20;
constexpr size_t kMaxByteFile = 1 << 16;  // the byte tokenizer's own file is smaller

// Beside tokenizer.json in a model folder; all travel with the model.
constexpr const char* kSideFiles[] = {"tokenizer_config.json",
                                      "special_tokens_map.json",
                                      "added_tokens.json",
                                      "chat_template.jinja",
                                      "tokenizer.model",
                                      "vocab.json",
                                      "merges.txt"};

// The tokenizer's own file under the name that packages look for, and what lies beside it.
std::vector<TokenizerFile> side_files(FileSystem& files, const std::string& file) {
  std::vector<TokenizerFile> all;
  const auto add = [&](const std::string& path, const std::string& name) {
    if (!files.exists(path)) return;
    auto content = read_text(files, path, kMaxBytes);
    if (content.ok()) all.push_back({name, std::move(content).value()});
  };
  const std::string own = file.ends_with(".model") ? "tokenizer.model" : "tokenizer.json";
  for (const char* name : kSideFiles) {
    if (own != name) add(join_path(parent_path(file), name), name);
  }
  add(file, own);
  return all;
}

}  // namespace

Status save_tokenizer(const Tokenizer& tokenizer, FileSystem& files, const std::string& folder) {
  for (const TokenizerFile& file : tokenizer.files()) {
    INVAR_TRY(write_text_atomically(files, join_path(folder, file.name), file.text));
  }
  return {};
}

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(FileSystem& files, const std::string& path) {
  std::string file = path;
  if (files.is_directory(path)) {
    file = join_path(path, "tokenizer.json");
    const std::string model = join_path(path, "tokenizer.model");
    if (!files.exists(file) && files.exists(model)) file = model;
  }
  INVAR_ASSIGN(std::string text, read_text(files, file, kMaxBytes));
  if (file.ends_with(".model")) {
    auto tokenizer = SentencePieceTokenizer::parse(text, side_files(files, file));
    if (!tokenizer.ok()) return tokenizer.status().with_context(file);
    return tokenizer;
  }
  if (text.size() < kMaxByteFile && ByteTokenizer::recognise(text).ok()) {
    return std::shared_ptr<const Tokenizer>(std::make_shared<ByteTokenizer>());
  }
  auto tokenizer = PipelineTokenizer::parse(text, side_files(files, file));
  if (!tokenizer.ok()) return tokenizer.status().with_context(file);
  return tokenizer;
}

}  // namespace invar
