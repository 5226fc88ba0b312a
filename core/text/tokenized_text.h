// Files to tokens: text, JSONL of every layout, and token files.
//
//   INVAR_ASSIGN(TokenizedText text, tokenize_files(files, paths, options, *tokenizer, vocab));
//
// Thread rule: pure functions over their arguments and files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/text/documents.h"
#include "core/text/example_encoder.h"
#include "core/text/token_buffer.h"
#include "core/text/tokenizer.h"

namespace invar {

struct TokenizeOptions {
  DocumentOptions documents;
  ExampleFormat format = ExampleFormat::kAuto;  // of JSONL records
  bool token_files = false;                     // every path is a token file; .bin files are in any case
  LossOn loss = LossOn::kAuto;
  std::string chat_template;    // source; empty: the tokenizer's own
  std::vector<double> weights;  // of each path; empty: 1
  uint64_t weight_seed = 0;     // which documents a fraction of a weight keeps
  int64_t max_documents = 0;    // stop after as many; 0: all
};

struct TokenizedText {
  explicit TokenizedText(int32_t vocab_size) : tokens(vocab_size) {}
  TokenBuffer tokens;
  int64_t documents = 0;        // with at least one token
  int64_t empty_documents = 0;  // left out
  int64_t bytes = 0;            // of text
  int64_t trained_tokens = 0;   // whose loss counts
  bool has_records = false;     // conversations, prompts with completions or token records: to be kept whole
  std::vector<std::string> paths;
};

// "file.jsonl:12": where document `index` was read.
std::string document_source(const TokenBuffer& tokens, const std::vector<std::string>& paths, size_t index);

// Reads and encodes all documents of `paths`. A text is closed by the tokenizer's end token where it has one.
// model_vocab: rows of the embedding; a larger tokenizer is "text.vocabulary_mismatch", no token at all "text.empty",
// tokens of which none is trained "text.all_masked" with the first samples.
Result<TokenizedText> tokenize_files(FileSystem& files, const std::vector<std::string>& paths,
                                     const TokenizeOptions& options, const Tokenizer& tokenizer, int64_t model_vocab,
                                     const CancelFlag* cancel = nullptr);

}  // namespace invar
