// Documents out of text and JSONL files, streamed in pieces.
//
//   DocumentReader reader(files, paths, {});
//   while (true) {
//     INVAR_ASSIGN(auto piece, reader.next());
//     if (!piece) break;
//     ... piece->text ...; if (piece->ends_document) ...
//   }
//
// A text file is one document; it comes in pieces of about a megabyte that end after a line where there is one.
// A JSONL line is one document, one piece; so is an element of a .json file that holds one array. Its text is that of
// `text_key`, or the record as it is for readers that know other layouts. Every error names the file and, for JSONL,
// the line. A byte order mark at the start of a file is skipped. Blank lines of a JSONL file are skipped. Thread rule:
// one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/status.h"
#include "core/text/utf8.h"

namespace invar {

enum class TextFormat { kAuto, kText, kJsonl };  // kAuto: .jsonl and .json are JSONL, everything else text

// "text.unsupported_format" for a file that its name tells to be of a format that is not read, with the way to convert.
Status check_readable(const std::string& path);

struct DocumentOptions {
  TextFormat format = TextFormat::kAuto;
  std::string text_key = "text";
  bool raw_records = false;  // JSONL: hand out the records, not their texts
  int64_t piece_bytes = 1 << 20;
  int64_t max_line_bytes = int64_t{256} << 20;  // a longer JSONL line is an error, not an allocation
};

struct DocumentPiece {
  std::string text;
  bool ends_document = false;
  bool is_line = false;  // of a JSONL file
  int64_t line = 0;      // where it stands, counted from 1; 0 for text
  size_t file = 0;       // which of the paths
};

class DocumentReader {
 public:
  DocumentReader(FileSystem& files, std::vector<std::string> paths, DocumentOptions options);

  // The next piece; nothing after the last file. A document without text still gives its last, empty piece.
  Result<std::optional<DocumentPiece>> next();

 private:
  Status open_next();
  Status fill();  // reads one more block into buffer_
  Result<std::optional<DocumentPiece>> next_text();
  Result<std::optional<DocumentPiece>> next_line();
  Result<std::optional<DocumentPiece>> next_element();
  Result<DocumentPiece> parse_line(std::string_view line) const;
  const std::string& path() const { return paths_[index_]; }

  FileSystem& files_;
  std::vector<std::string> paths_;
  DocumentOptions options_;
  size_t index_ = 0;  // of the file being read
  std::unique_ptr<RandomAccessFile> file_;
  bool jsonl_ = false, array_ = false;  // array_: one JSON array, read whole
  int64_t offset_ = 0;                  // bytes of the file in buffer_ or before
  int64_t line_ = 0;
  std::string buffer_;  // read; handed out before begin_, known to hold no line end from there to scanned_
  size_t begin_ = 0, scanned_ = 0;
  Utf8Checker utf8_;
};

}  // namespace invar
