#include "core/text/token_buffer.h"

#include <xxhash.h>

#include <algorithm>

namespace invar {
namespace {

constexpr int64_t kReadBytes = 1 << 20;

// Calls take(integers of `width` bytes, little-endian, zero-extended) over the whole file, block by block.
template <typename Take>
Status for_each_block(FileSystem& files, const std::string& path, int width, Take take) {
  INVAR_ASSIGN(auto file, files.open(path));
  if (file->size() % width != 0) {
    return Error(Code::kDataLoss, "text.token_file_size",
                 cat(path, ": ", file->size(), " bytes is not a multiple of ", width));
  }
  std::vector<unsigned char> block;
  std::vector<int64_t> values;
  for (int64_t offset = 0; offset < file->size();) {
    const int64_t bytes = std::min(kReadBytes, file->size() - offset);
    block.resize(static_cast<size_t>(bytes));
    INVAR_TRY(file->read_at(offset, std::as_writable_bytes(std::span(block))));
    values.clear();
    for (size_t i = 0; i < block.size(); i += static_cast<size_t>(width)) {
      uint32_t value = 0;
      for (int b = width - 1; b >= 0; --b) value = value << 8 | block[i + static_cast<size_t>(b)];
      values.push_back(value);
    }
    INVAR_TRY(take(values));
    offset += bytes;
  }
  return {};
}

}  // namespace

Status TokenBuffer::append(std::span<const int32_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size_) {
      return Error(
          Code::kInvalidArgument, "text.vocabulary_mismatch",
          cat("token ", size() + static_cast<int64_t>(i), " is ", ids[i], "; ids must lie in [0, ", vocab_size_, ")"));
    }
  }
  if (!trained_.empty()) trained_.resize(static_cast<size_t>(size()) + ids.size(), 1);
  if (vocab_size_ <= 65536) {
    narrow_.insert(narrow_.end(), ids.begin(), ids.end());
  } else {
    wide_.insert(wide_.end(), ids.begin(), ids.end());
  }
  return {};
}

Status TokenBuffer::append(std::span<const int32_t> ids, const std::vector<bool>& trained) {
  const auto before = static_cast<size_t>(size());
  INVAR_TRY(append(ids));
  if (trained_.empty() && std::find(trained.begin(), trained.end(), false) == trained.end()) return {};
  trained_.resize(before, 1);
  trained_.insert(trained_.end(), trained.begin(), trained.end());
  return {};
}

void TokenBuffer::begin_document(const Source& source) {
  sources_.resize(document_starts_.size());
  sources_.push_back(source);
  document_starts_.push_back(size());
}

void TokenBuffer::copy(int64_t begin, std::span<int32_t> out) const {
  if (vocab_size_ <= 65536) {
    std::copy_n(narrow_.begin() + begin, out.size(), out.begin());
  } else {
    std::copy_n(wide_.begin() + begin, out.size(), out.begin());
  }
}

uint64_t TokenBuffer::digest() const {
  const uint64_t ids = vocab_size_ <= 65536 ? XXH3_64bits(narrow_.data(), narrow_.size() * sizeof(narrow_[0]))
                                            : XXH3_64bits(wide_.data(), wide_.size() * sizeof(wide_[0]));
  return trained_.empty() ? ids : XXH3_64bits_withSeed(trained_.data(), trained_.size(), ids);
}

Result<TokenBuffer> read_token_file(FileSystem& files, const std::string& path, int bytes_per_token,
                                    int32_t vocab_size) {
  if (bytes_per_token != 2 && bytes_per_token != 4) {
    return Error(Code::kInvalidArgument, "text.token_width", cat(bytes_per_token, " bytes a token; choose 2 or 4"));
  }
  TokenBuffer tokens(vocab_size);
  std::vector<int32_t> ids;
  const Status status = for_each_block(files, path, bytes_per_token, [&](const std::vector<int64_t>& values) {
    ids.assign(values.begin(), values.end());
    return tokens.append(ids);
  });
  if (!status.ok()) return status.reason() == "text.vocabulary_mismatch" ? status.with_context(path) : status;
  if (tokens.size() == 0) return Error(Code::kDataLoss, "text.empty", cat(path, ": no tokens"));
  return tokens;
}

Result<std::vector<int64_t>> read_i32_file(FileSystem& files, const std::string& path) {
  std::vector<int64_t> result;
  INVAR_TRY(for_each_block(files, path, 4, [&](const std::vector<int64_t>& values) {
    for (const int64_t value : values) result.push_back(static_cast<int32_t>(static_cast<uint32_t>(value)));
    return Status();
  }));
  return result;
}

}  // namespace invar
