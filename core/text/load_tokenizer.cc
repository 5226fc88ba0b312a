// Which files make a tokenizer, and which class reads them.
#include "core/text/byte_tokenizer.h"
#include "core/text/pipeline/pipeline_tokenizer.h"
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

}  // namespace

Status save_tokenizer(const Tokenizer& tokenizer, FileSystem& files, const std::string& folder) {
  for (const TokenizerFile& file : tokenizer.files()) {
    INVAR_TRY(write_text_atomically(files, join_path(folder, file.name), file.text));
  }
  return {};
}

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(FileSystem& files, const std::string& path) {
  const std::string file = files.is_directory(path) ? join_path(path, "tokenizer.json") : path;
  INVAR_ASSIGN(std::string text, read_text(files, file, kMaxBytes));
  if (text.size() < kMaxByteFile && ByteTokenizer::recognise(text).ok()) {
    return std::shared_ptr<const Tokenizer>(std::make_shared<ByteTokenizer>());
  }
  std::vector<TokenizerFile> all;
  for (const char* name : kSideFiles) {
    const std::string side = join_path(parent_path(file), name);
    if (!files.exists(side)) continue;
    INVAR_ASSIGN(std::string content, read_text(files, side, kMaxBytes));
    all.push_back({name, std::move(content)});
  }
  all.push_back({"tokenizer.json", text});
  auto tokenizer = PipelineTokenizer::parse(text, std::move(all));
  if (!tokenizer.ok()) return tokenizer.status().with_context(file);
  return tokenizer;
}

}  // namespace invar
