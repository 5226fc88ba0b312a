#include "core/text/tokenized_text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/rng.h"
#include "core/text/chat.h"
#include "core/text/token_file.h"

namespace invar {
namespace {

constexpr size_t kNamedSamples = 8;

// Collects the documents of all files.
class Collector {
 public:
  Collector(const TokenizeOptions& options, const Tokenizer& tokenizer, const CancelFlag* cancel)
      : options_(options), tokenizer_(tokenizer), cancel_(cancel), text_(tokenizer.vocab_size()) {}

  Result<TokenizedText> run(FileSystem& files, const std::vector<std::string>& paths) {
    text_.paths = paths;
    for (size_t i = 0; i < paths.size() && !full(); ++i) {
      weight_ = options_.weights.empty() ? 1 : options_.weights[i];
      if (options_.token_files || is_token_file(paths[i])) {
        INVAR_TRY(read_tokens(files, paths[i], i));
      } else {
        INVAR_TRY(read_documents(files, paths[i], i));
      }
    }
    return std::move(text_);
  }

 private:
  bool full() const { return options_.max_documents > 0 && text_.documents >= options_.max_documents; }

  // How often a document stands in an epoch: the weight, and one more for the share of documents that its fraction is.
  int64_t copies() {
    const double whole = std::floor(weight_);
    Rng rng(options_.weight_seed, draws_++);
    const bool more = static_cast<double>(rng.next_below(1u << 24)) < (weight_ - whole) * (1u << 24);
    return static_cast<int64_t>(whole) + (more ? 1 : 0);
  }

  Status read_tokens(FileSystem& files, const std::string& path, size_t index) {
    for (int64_t copy = copies(); copy > 0; --copy) {
      text_.tokens.begin_document({static_cast<int32_t>(index), 0});
      const int64_t before = text_.tokens.size();
      INVAR_TRY(append_token_file(files, path, &text_.tokens));
      text_.trained_tokens += text_.tokens.size() - before;
      ++text_.documents;
    }
    return {};
  }

  Status read_documents(FileSystem& files, const std::string& path, size_t index) {
    DocumentOptions documents = options_.documents;
    documents.raw_records = true;
    DocumentReader reader(files, {path}, documents);
    while (!full()) {
      INVAR_TRY(check_cancel(cancel_));
      INVAR_ASSIGN(const auto piece, reader.next());
      if (!piece) break;
      const Status status = piece->is_line ? add_record(*piece, index) : add_text(*piece, index);
      if (!status.ok()) return piece->is_line ? status.with_context(cat(path, ":", piece->line)) : status;
    }
    return {};
  }

  // A text file is one document in pieces; only one of weight 0 is left out.
  Status add_text(const DocumentPiece& piece, size_t index) {
    if (options_.loss == LossOn::kCompletion) {
      return Error(Code::kInvalidArgument, "text.no_completion",
                   cat(text_.paths[index], ": a plain text has no part that the model writes; train all tokens"));
    }
    const TokenBuffer::Source source{static_cast<int32_t>(index), 0};
    std::vector<int32_t> ids;
    if (!inside_) ids = tokenizer_.text_prefix();
    const size_t prefix = ids.size();
    tokenizer_.encode_to(piece.text, {}, &ids);
    text_.bytes += static_cast<int64_t>(piece.text.size());
    const bool begins = !inside_ && ids.size() > prefix;
    inside_ = inside_ || begins;
    if (piece.ends_document) {
      if (!inside_) {
        ++text_.empty_documents;
        return {};
      }
      const bool closed = !ids.empty() && ids.back() == tokenizer_.eos_id();
      if (tokenizer_.eos_id() >= 0 && !closed) ids.push_back(tokenizer_.eos_id());
    }
    if (!inside_) return {};
    if (weight_ == 1) {  // as it comes, so that a large file is held once
      if (begins) text_.tokens.begin_document(source);
      INVAR_TRY(text_.tokens.append(ids));
      text_.trained_tokens += static_cast<int64_t>(ids.size());
      text_.documents += piece.ends_document ? 1 : 0;
    } else {
      pending_.insert(pending_.end(), ids.begin(), ids.end());
      if (piece.ends_document) INVAR_TRY(add({std::exchange(pending_, {}), {}}, source));
    }
    inside_ = !piece.ends_document;
    return {};
  }

  Status add_record(const DocumentPiece& piece, size_t index) {
    INVAR_ASSIGN(const Example example, parse_example(piece.text, options_.format, options_.documents.text_key));
    if (example.kind != ExampleKind::kText) text_.has_records = true;
    if (encoder_ == nullptr) INVAR_TRY(make_encoder());
    INVAR_ASSIGN(EncodedExample encoded, encoder_->encode(example));
    text_.bytes += static_cast<int64_t>(example.kind == ExampleKind::kText ? example.text.size() : piece.text.size());
    const bool empty = example.kind == ExampleKind::kText ? example.text.empty() : encoded.ids.empty();
    if (empty) {
      ++text_.empty_documents;
      return {};
    }
    return add(std::move(encoded), {static_cast<int32_t>(index), piece.line});
  }

  Status add(EncodedExample encoded, const TokenBuffer::Source& source) {
    for (int64_t copy = copies(); copy > 0; --copy) {
      text_.tokens.begin_document(source);
      if (encoded.trained.empty()) {
        INVAR_TRY(text_.tokens.append(encoded.ids));
        text_.trained_tokens += static_cast<int64_t>(encoded.ids.size());
      } else {
        INVAR_TRY(text_.tokens.append(encoded.ids, encoded.trained));
        text_.trained_tokens += std::count(encoded.trained.begin(), encoded.trained.end(), true);
      }
      ++text_.documents;
    }
    return {};
  }

  Status make_encoder() {
    std::shared_ptr<const ChatTemplate> chat;
    if (!options_.chat_template.empty()) {
      INVAR_ASSIGN(chat, chat_template_from(options_.chat_template, tokenizer_));
    } else {
      INVAR_ASSIGN(chat, chat_template_of(tokenizer_));
    }
    encoder_ = std::make_unique<ExampleEncoder>(tokenizer_, std::move(chat), options_.loss);
    return {};
  }

  const TokenizeOptions& options_;
  const Tokenizer& tokenizer_;
  const CancelFlag* cancel_;
  std::unique_ptr<ExampleEncoder> encoder_;
  TokenizedText text_;
  std::vector<int32_t> pending_;  // the open text document
  bool inside_ = false;           // it has at least one token
  double weight_ = 1;
  uint64_t draws_ = 0;
};

}  // namespace

std::string document_source(const TokenBuffer& tokens, const std::vector<std::string>& paths, size_t index) {
  if (index >= tokens.sources().size()) return cat("document ", index);
  const TokenBuffer::Source& source = tokens.sources()[index];
  const std::string& path = paths[static_cast<size_t>(source.file)];
  return source.line > 0 ? cat(path, ":", source.line) : path;
}

Result<TokenizedText> tokenize_files(FileSystem& files, const std::vector<std::string>& paths,
                                     const TokenizeOptions& options, const Tokenizer& tokenizer, int64_t model_vocab,
                                     const CancelFlag* cancel) {
  if (paths.empty()) return Error(Code::kInvalidArgument, "text.no_files", "no text files are named");
  if (tokenizer.vocab_size() > model_vocab) {
    return Error(Code::kInvalidArgument, "text.vocabulary_mismatch",
                 cat("the tokenizer has ", tokenizer.vocab_size(), " tokens, the model's vocabulary only ", model_vocab,
                     "; raise model.vocab_size or use the model's own tokenizer"));
  }
  if (!options.weights.empty() && options.weights.size() != paths.size()) {
    return Error(Code::kInvalidArgument, "text.weights",
                 cat(options.weights.size(), " weights for ", paths.size(), " files"));
  }
  for (const double weight : options.weights) {
    if (!(weight >= 0) || weight > 1000) {
      return Error(Code::kInvalidArgument, "text.weights", cat("weight ", weight, "; expected 0 to 1000"));
    }
  }
  INVAR_ASSIGN(TokenizedText text, Collector(options, tokenizer, cancel).run(files, paths));
  if (text.tokens.size() == 0) {
    return Error(Code::kDataLoss, "text.empty",
                 cat(paths.front(), paths.size() > 1 ? cat(" and ", paths.size() - 1, " more files") : std::string(),
                     ": no text to train on"));
  }
  if (text.trained_tokens == 0) {
    std::string samples;
    const size_t named = std::min(kNamedSamples, static_cast<size_t>(text.documents));
    for (size_t i = 0; i < named; ++i) samples += (i > 0 ? ", " : "") + document_source(text.tokens, text.paths, i);
    return Error(Code::kDataLoss, "text.all_masked",
                 cat("not one of ", text.tokens.size(), " tokens in ", text.documents,
                     " samples is trained: all labels are masked: ", samples,
                     static_cast<size_t>(text.documents) > named ? ", ..." : ""));
  }
  return text;
}

}  // namespace invar
