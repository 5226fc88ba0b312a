// Token ids in memory, two bytes each where the vocabulary allows, which of them are trained, and where documents
// begin and came from.
// Thread rule: const access from any thread once filled.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/status.h"

namespace invar {

class TokenBuffer {
 public:
  // Every id appended lies in [0, vocab_size).
  explicit TokenBuffer(int32_t vocab_size) : vocab_size_(vocab_size) {}

  int32_t vocab_size() const { return vocab_size_; }
  int64_t size() const { return static_cast<int64_t>(narrow_.size() + wide_.size()); }
  // "text.vocabulary_mismatch" names the position and the id. trained: of each id; all are without it.
  Status append(std::span<const int32_t> ids);
  Status append(std::span<const int32_t> ids, const std::vector<bool>& trained);
  // Marks that the next token appended begins a document.
  void begin_document() { document_starts_.push_back(size()); }
  // Rising; the first is 0 for tokens that came as documents, none for a bare token file.
  const std::vector<int64_t>& document_starts() const { return document_starts_; }
  // Where a document was read: an index of the caller's files, and a line from 1 on, 0 for a text file.
  struct Source {
    int32_t file = 0;
    int64_t line = 0;
  };
  void begin_document(const Source& source);
  // One for each document start, or none.
  const std::vector<Source>& sources() const { return sources_; }
  // Whether the loss of predicting token i counts.
  bool trained(int64_t i) const { return trained_.empty() || trained_[static_cast<size_t>(i)] != 0; }
  bool all_trained() const { return trained_.empty(); }
  // Of all ids: tells whether a checkpoint's data position belongs to these tokens.
  uint64_t digest() const;
  // out[i] = token begin + i.
  void copy(int64_t begin, std::span<int32_t> out) const;

 private:
  int32_t vocab_size_;
  std::vector<uint16_t> narrow_;  // used when vocab_size <= 65536
  std::vector<uint32_t> wide_;
  std::vector<uint8_t> trained_;  // empty: all
  std::vector<int64_t> document_starts_;
  std::vector<Source> sources_;
};

// A bare file of little-endian ids, 2 or 4 bytes each.
Result<TokenBuffer> read_token_file(FileSystem& files, const std::string& path, int bytes_per_token,
                                    int32_t vocab_size);
// A file of little-endian 32-bit integers, such as the order in which a recorded run visited its data.
Result<std::vector<int64_t>> read_i32_file(FileSystem& files, const std::string& path);

}  // namespace invar
