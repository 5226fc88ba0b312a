#include "core/text/train_tokenizer.h"

namespace invar {

Result<TrainedTokenizer> train_tokenizer(FileSystem& files, const std::vector<std::string>& paths,
                                         const DocumentOptions& documents, const BpeTrainerOptions& options,
                                         const BpeTrainer::Hooks& hooks) {
  if (paths.empty()) return Error(Code::kInvalidArgument, "text.no_files", "no text files are named");
  BpeTrainer trainer(options);
  TrainedTokenizer out;
  DocumentReader reader(files, paths, documents);
  std::string line;  // begun in an earlier piece
  while (true) {
    INVAR_TRY(check_cancel(hooks.cancel));
    INVAR_ASSIGN(const auto piece, reader.next());
    if (!piece) break;
    out.bytes += static_cast<int64_t>(piece->text.size());
    if (piece->is_line) {
      trainer.feed(piece->text);
    } else {
      for (size_t at = 0; at < piece->text.size();) {
        const size_t end = piece->text.find('\n', at);
        line.append(piece->text, at, end == std::string::npos ? end : end + 1 - at);
        if (end == std::string::npos) break;
        trainer.feed(line);
        line.clear();
        at = end + 1;
      }
      if (piece->ends_document && !line.empty()) {
        trainer.feed(line);
        line.clear();
      }
    }
    if (piece->ends_document) ++out.documents;
  }
  if (out.bytes == 0) return Error(Code::kDataLoss, "text.empty", cat(paths.front(), ": no text to learn from"));
  INVAR_ASSIGN(const BpeTrainer::Trained trained, trainer.learn(hooks));
  out.tokenizer_json = trainer.tokenizer_json(trained);
  out.vocab_size = static_cast<int64_t>(trained.tokens.size());
  out.merges = static_cast<int64_t>(trained.merges.size());
  // The first special token ends documents.
  const std::string end = options.special_tokens.empty() ? "null" : BpeTrainer::quoted(options.special_tokens.front());
  out.tokenizer_config_json = cat("{\n \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n \"eos_token\": ", end,
                                  ",\n \"clean_up_tokenization_spaces\": false,\n"
                                  " \"model_max_length\": 1000000000\n}\n");
  return out;
}

Status save_trained_tokenizer(const TrainedTokenizer& trained, FileSystem& files, const std::string& path) {
  if (path.ends_with(".json")) return write_text_atomically(files, path, trained.tokenizer_json);
  INVAR_TRY(files.make_directories(path));
  INVAR_TRY(write_text_atomically(files, join_path(path, "tokenizer_config.json"), trained.tokenizer_config_json));
  return write_text_atomically(files, join_path(path, "tokenizer.json"), trained.tokenizer_json);
}

}  // namespace invar
