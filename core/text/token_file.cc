#include "core/text/token_file.h"

#include <algorithm>
#include <vector>

namespace invar {
namespace {

constexpr int64_t kHeaderBytes = 256 * 4;
constexpr uint32_t kMagic16 = 20240520, kMagic32 = 20240801;
constexpr int64_t kReadBytes = 1 << 20;

uint32_t little_endian(const unsigned char* bytes, int width) {
  uint32_t value = 0;
  for (int b = width - 1; b >= 0; --b) value = value << 8 | bytes[b];
  return value;
}

struct Layout {
  int64_t begin = 0, end = 0;
  int width = 2;
};

Result<Layout> layout_of(const RandomAccessFile& file, const std::string& path) {
  Layout layout{0, file.size(), path.ends_with(".u32") ? 4 : 2};
  if (file.size() >= kHeaderBytes && path.ends_with(".bin")) {
    std::vector<unsigned char> header(kHeaderBytes);
    INVAR_TRY(file.read_at(0, std::as_writable_bytes(std::span(header))));
    const uint32_t magic = little_endian(header.data(), 4);
    if (magic == kMagic16 || magic == kMagic32) {
      layout.width = magic == kMagic16 ? 2 : 4;
      const int64_t count = little_endian(header.data() + 8, 4);
      layout.begin = kHeaderBytes;
      if (file.size() != kHeaderBytes + count * layout.width) {
        return Error(Code::kDataLoss, "text.token_file_size",
                     cat(path, ": the header counts ", count, " tokens of ", layout.width, " bytes, but the file has ",
                         file.size() - kHeaderBytes, " bytes behind it"));
      }
    }
  }
  if ((layout.end - layout.begin) % layout.width != 0) {
    return Error(Code::kDataLoss, "text.token_file_size",
                 cat(path, ": ", file.size(), " bytes is not a multiple of ", layout.width));
  }
  return layout;
}

}  // namespace

bool is_token_file(const std::string& path) {
  return path.ends_with(".bin") || path.ends_with(".u16") || path.ends_with(".u32");
}

Status append_token_file(FileSystem& files, const std::string& path, TokenBuffer* tokens) {
  if (path.ends_with(".bin") && files.exists(path.substr(0, path.size() - 4) + ".idx")) {
    return Error(Code::kUnimplemented, "text.unsupported_format",
                 cat(path,
                     ": belongs to a Megatron index (.idx beside it), which is not read; write each document as a "
                     "JSONL line {\"input_ids\": [...]}"));
  }
  INVAR_ASSIGN(const auto file, files.open(path));
  INVAR_ASSIGN(const Layout layout, layout_of(*file, path));
  std::vector<unsigned char> block;
  std::vector<int32_t> ids;
  for (int64_t at = layout.begin; at < layout.end;) {
    block.resize(static_cast<size_t>(std::min(kReadBytes, layout.end - at)));
    INVAR_TRY(file->read_at(at, std::as_writable_bytes(std::span(block))));
    ids.clear();
    for (size_t i = 0; i < block.size(); i += static_cast<size_t>(layout.width)) {
      ids.push_back(static_cast<int32_t>(little_endian(&block[i], layout.width)));
    }
    const Status status = tokens->append(ids);
    if (!status.ok()) return status.with_context(path);
    at += static_cast<int64_t>(block.size());
  }
  return {};
}

}  // namespace invar
