// Token ids in memory, two bytes each where the vocabulary allows, and where documents begin.
// Thread rule: const access from any thread once filled.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/text/documents.h"
#include "core/text/tokenizer.h"

namespace invar {

class TokenBuffer {
 public:
  // Every id appended lies in [0, vocab_size).
  explicit TokenBuffer(int32_t vocab_size) : vocab_size_(vocab_size) {}

  int32_t vocab_size() const { return vocab_size_; }
  int64_t size() const { return static_cast<int64_t>(narrow_.size() + wide_.size()); }
  // "text.vocabulary_mismatch" names the position and the id.
  Status append(std::span<const int32_t> ids);
  // Marks that the next token appended begins a document.
  void begin_document() { document_starts_.push_back(size()); }
  // Rising; the first is 0 for tokens that came as documents, none for a bare token file.
  const std::vector<int64_t>& document_starts() const { return document_starts_; }
  // Of all ids: tells whether a checkpoint's data position belongs to these tokens.
  uint64_t digest() const;
  // out[i] = token begin + i.
  void copy(int64_t begin, std::span<int32_t> out) const;

 private:
  int32_t vocab_size_;
  std::vector<uint16_t> narrow_;  // used when vocab_size <= 65536
  std::vector<uint32_t> wide_;
  std::vector<int64_t> document_starts_;
};

struct TokenizedText {
  TokenBuffer tokens;
  int64_t documents = 0;        // with at least one token
  int64_t empty_documents = 0;  // left out
  int64_t bytes = 0;            // of text
};

// Reads and encodes all documents of `paths`, each closed by the tokenizer's end token where it has one.
// model_vocab: rows of the embedding; a larger tokenizer is "text.vocabulary_mismatch", no token at all "text.empty".
Result<TokenizedText> tokenize_files(FileSystem& files, const std::vector<std::string>& paths,
                                     const DocumentOptions& options, const Tokenizer& tokenizer, int64_t model_vocab,
                                     const CancelFlag* cancel = nullptr);

// A bare file of little-endian ids, 2 or 4 bytes each.
Result<TokenBuffer> read_token_file(FileSystem& files, const std::string& path, int bytes_per_token,
                                    int32_t vocab_size);
// A file of little-endian 32-bit integers, such as the order in which a recorded run visited its data.
Result<std::vector<int64_t>> read_i32_file(FileSystem& files, const std::string& path);

}  // namespace invar
