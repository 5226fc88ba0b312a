#include "core/text/documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace invar {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool has_suffix(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

Status check_readable(const std::string& path) {
  struct Refused {
    std::string_view suffix, what, advice;
  };
  constexpr std::string_view kDuckdb = "duckdb -c \"COPY (SELECT * FROM 'FILE') TO 'out.jsonl' (FORMAT json)\"";
  constexpr Refused kRefused[] = {
      {".parquet", "Parquet", kDuckdb},
      {".arrow", "Arrow", "python -c \"from datasets import Dataset; Dataset.from_file('FILE').to_json('out.jsonl')\""},
      {".csv", "CSV", kDuckdb},
      {".tsv", "TSV", kDuckdb},
      {".idx", "a Megatron index", "write each document as a JSONL line {\"input_ids\": [...]}"},
      {".gz", "compressed", "gunzip it"},
      {".zst", "compressed", "unzstd it"},
      {".xz", "compressed", "unxz it"},
      {".zip", "compressed", "unzip it"},
      {".npy", "NumPy", "write the ids as raw 16-bit integers, numpy's tofile, named .bin"},
  };
  for (const Refused& refused : kRefused) {
    if (!has_suffix(path, refused.suffix)) continue;
    std::string advice(refused.advice);
    if (const size_t at = advice.find("FILE"); at != std::string::npos) advice.replace(at, 4, path);
    return Error(Code::kUnimplemented, "text.unsupported_format",
                 cat(path, ": ", refused.what, " is not read; convert it to JSONL or text: ", advice));
  }
  return {};
}

DocumentReader::DocumentReader(FileSystem& files, std::vector<std::string> paths, DocumentOptions options)
    : files_(files), paths_(std::move(paths)), options_(std::move(options)) {}

Status DocumentReader::open_next() {
  if (files_.is_directory(path())) {
    return Error(Code::kInvalidArgument, "text.is_a_folder", cat(path(), ": is a folder; name its text files"));
  }
  INVAR_TRY(check_readable(path()));
  INVAR_ASSIGN(file_, files_.open(path()));
  jsonl_ = options_.format == TextFormat::kJsonl ||
           (options_.format == TextFormat::kAuto && (has_suffix(path(), ".jsonl") || has_suffix(path(), ".json")));
  offset_ = 0;
  line_ = 0;
  buffer_.clear();
  begin_ = scanned_ = 0;
  utf8_ = Utf8Checker();
  INVAR_TRY(fill());
  if (std::string_view(buffer_).substr(0, 3) == kByteOrderMark) begin_ = scanned_ = kByteOrderMark.size();
  array_ = false;
  if (!jsonl_) return {};
  const size_t first = buffer_.find_first_not_of(" \t\r\n", begin_);
  if (first == std::string::npos || buffer_[first] != '[' || !has_suffix(path(), ".json")) return {};
  if (file_->size() > options_.max_line_bytes) {
    return Error(Code::kDataLoss, "text.line_too_long",
                 cat(path(), ": one JSON array of ", file_->size(), " bytes; more than ", options_.max_line_bytes,
                     " must be JSONL, one record a line"));
  }
  while (offset_ < file_->size()) INVAR_TRY(fill());
  array_ = true;
  begin_ = first + 1;
  line_ = 1 + std::count(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(begin_), '\n');
  return {};
}

Status DocumentReader::fill() {
  buffer_.erase(0, begin_);
  scanned_ -= begin_;
  begin_ = 0;
  const int64_t bytes = std::min(options_.piece_bytes, file_->size() - offset_);
  const size_t before = buffer_.size();
  buffer_.resize(before + static_cast<size_t>(bytes));
  const std::span<char> block(buffer_.data() + before, static_cast<size_t>(bytes));
  INVAR_TRY(file_->read_at(offset_, std::as_writable_bytes(block)));
  offset_ += bytes;
  bool good = utf8_.feed(std::string_view(block.data(), block.size()));
  if (good && offset_ == file_->size()) good = utf8_.finish();
  if (good) return {};
  // The line of the bad byte: those handed out before, and those in the buffer before it.
  const int64_t bad_in_buffer = utf8_.bad_offset() - (offset_ - static_cast<int64_t>(buffer_.size()));
  const int64_t line =
      line_ + 1 + std::count(buffer_.begin(), buffer_.begin() + std::max<int64_t>(bad_in_buffer, 0), '\n');
  return Error(Code::kDataLoss, "text.bad_utf8",
               cat(path(), ":", line, ": byte ", utf8_.bad_offset(), " is not valid utf-8; convert the file to utf-8"));
}

Result<std::optional<DocumentPiece>> DocumentReader::next() {
  while (index_ < paths_.size()) {
    if (!file_) INVAR_TRY(open_next());
    INVAR_ASSIGN(auto piece, array_ ? next_element() : jsonl_ ? next_line() : next_text());
    if (piece) {
      piece->file = index_;
      return piece;
    }
    file_.reset();
    ++index_;
  }
  return std::optional<DocumentPiece>();
}

Result<std::optional<DocumentPiece>> DocumentReader::next_text() {
  if (line_ < 0) return std::optional<DocumentPiece>();  // the last piece was handed out
  while (static_cast<int64_t>(buffer_.size() - begin_) < options_.piece_bytes && offset_ < file_->size()) {
    INVAR_TRY(fill());
  }
  const bool all_read = offset_ == file_->size();
  size_t cut = buffer_.size();
  if (!all_read) {
    const size_t line_end = buffer_.rfind('\n');
    if (line_end != std::string::npos && line_end >= begin_) {
      cut = line_end + 1;
    } else {  // no line end: at least never inside a character
      const auto byte = [&](size_t i) { return static_cast<unsigned char>(buffer_[i]); };
      while (cut > begin_ && cut + 4 > buffer_.size() && (byte(cut - 1) & 0xC0) == 0x80) --cut;
      if (cut > begin_ && (byte(cut - 1) & 0xC0) == 0xC0) --cut;
      if (cut == begin_) cut = buffer_.size();
    }
  }
  DocumentPiece piece{buffer_.substr(begin_, cut - begin_), all_read, false};
  begin_ = scanned_ = cut;
  line_ = all_read ? -1 : line_ + std::count(piece.text.begin(), piece.text.end(), '\n');
  return std::optional<DocumentPiece>(std::move(piece));
}

Result<std::optional<DocumentPiece>> DocumentReader::next_line() {
  while (true) {
    const size_t end = buffer_.find('\n', scanned_);
    if (end == std::string::npos && offset_ < file_->size()) {
      scanned_ = buffer_.size();
      if (static_cast<int64_t>(buffer_.size() - begin_) > options_.max_line_bytes) {
        return Error(Code::kDataLoss, "text.line_too_long",
                     cat(path(), ":", line_ + 1, ": line is longer than ", options_.max_line_bytes, " bytes"));
      }
      INVAR_TRY(fill());
      continue;
    }
    const size_t stop = std::min(end, buffer_.size());
    if (end == std::string::npos && stop == begin_) return std::optional<DocumentPiece>();
    const std::string line = buffer_.substr(begin_, stop - begin_);
    begin_ = scanned_ = end == std::string::npos ? stop : stop + 1;
    ++line_;
    if (is_blank(line)) continue;
    INVAR_ASSIGN(auto piece, parse_line(line));
    return std::optional<DocumentPiece>(std::move(piece));
  }
}

// The next element of the array in the buffer: up to a comma or the bracket that closes it.
Result<std::optional<DocumentPiece>> DocumentReader::next_element() {
  const auto skip_blank = [&] {
    for (; begin_ < buffer_.size() && std::string_view(" \t\r\n,").find(buffer_[begin_]) != std::string::npos;
         ++begin_) {
      line_ += buffer_[begin_] == '\n' ? 1 : 0;
    }
  };
  skip_blank();
  if (begin_ < buffer_.size() && buffer_[begin_] == ']') return std::optional<DocumentPiece>();
  int depth = 0;
  bool quoted = false;
  size_t end = begin_;
  for (; end < buffer_.size(); ++end) {
    const char c = buffer_[end];
    if (quoted) {
      if (c == '\\') ++end;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 0 && (c == ',' || c == ']')) {
      break;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  if (end >= buffer_.size()) {
    return Error(Code::kDataLoss, "text.bad_json", cat(path(), ":", line_, ": the JSON array is not closed"));
  }
  const std::string element = buffer_.substr(begin_, end - begin_);
  INVAR_ASSIGN(auto piece, parse_line(element));
  line_ += std::count(element.begin(), element.end(), '\n');
  begin_ = end;
  return std::optional<DocumentPiece>(std::move(piece));
}

Result<DocumentPiece> DocumentReader::parse_line(std::string_view line) const {
  const auto fail = [&](std::string_view reason, std::string_view what) {
    return Error(Code::kDataLoss, reason, cat(path(), ":", line_, ": ", what));
  };
  if (options_.raw_records) return DocumentPiece{std::string(line), true, true, line_};
  try {
    const auto json = nlohmann::json::parse(line.begin(), line.end());
    if (!json.is_object())
      return fail("text.bad_json", cat("a JSON ", json.type_name(), "; every line must be an object"));
    const auto value = json.find(options_.text_key);
    if (value == json.end()) return fail("text.missing_key", cat("no key \"", options_.text_key, "\""));
    if (!value->is_string()) {
      return fail("text.not_a_string",
                  cat("\"", options_.text_key, "\" is a ", value->type_name(), ", expected a string"));
    }
    return DocumentPiece{value->get<std::string>(), true, true, line_};
  } catch (const nlohmann::json::parse_error& error) {
    return fail("text.bad_json", cat("invalid JSON at byte ", error.byte, " of the line"));
  } catch (const nlohmann::json::exception& error) {
    return fail("text.bad_json", cat("invalid JSON: ", error.what()));
  }
}

}  // namespace invar
