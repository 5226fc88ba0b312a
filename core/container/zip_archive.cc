#include "core/container/zip_archive.h"

#include <algorithm>
#include <cstring>

#include "core/container/tensor_info.h"

namespace invar {
namespace {

// Signatures and sizes of the records (PKWARE APPNOTE 4.3).
constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryHeader = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kZip64Locator = 0x07064b50, kZip64End = 0x06064b50;
constexpr int64_t kLocalBytes = 30, kDirectoryBytes = 46, kEndBytes = 22, kLocatorBytes = 20, kZip64EndBytes = 56;
constexpr int64_t kLongestComment = 65535;
constexpr uint16_t kEncrypted = 1, kZip64Extra = 1;

// A little-endian number of `bytes` bytes; the caller has checked the bounds.
uint64_t number(const std::byte* at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= static_cast<uint64_t>(at[i]) << (8 * i);
  return value;
}
uint16_t u16(const std::byte* at) { return static_cast<uint16_t>(number(at, 2)); }
uint32_t u32(const std::byte* at) { return static_cast<uint32_t>(number(at, 4)); }
uint64_t u64(const std::byte* at) { return number(at, 8); }

bool is_safe_name(std::string_view name) {
  if (name.empty() || name[0] == '/' || name.find('\0') != std::string_view::npos) return false;
  if (name.find('\\') != std::string_view::npos || (name.size() > 1 && name[1] == ':')) return false;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    if (name.substr(at, end - at) == "..") return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

class ZipReader {
 public:
  ZipReader(const RandomAccessFile& file, int64_t directory_bytes) : file_(file), limit_(directory_bytes) {}

  Result<ZipArchive> run() {
    INVAR_TRY(read_end());
    INVAR_TRY(read_directory());
    INVAR_TRY(check_entries());
    auto& entries = archive_.entries_;
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (size_t i = 1; i < entries.size(); ++i) {
      if (entries[i].name != entries[i - 1].name) continue;
      return bad("zip.duplicate_name", cat("entry ", in_quotes(entries[i].name), " appears twice"));
    }
    return std::move(archive_);
  }

 private:
  Status bad(std::string_view reason, const std::string& what) const {
    return Error(Code::kDataLoss, reason, cat(file_.path(), ": ", what));
  }
  Status bad_entry(std::string_view reason, const ZipEntry& entry, const std::string& what) const {
    return bad(reason, cat("zip entry ", in_quotes(entry.name), " ", what));
  }

  // The end record is the last thing in the file, up to a comment.
  Status read_end() {
    const int64_t size = file_.size();
    if (size < kEndBytes) return bad("zip.truncated", cat("has ", size, " bytes, too few for a zip file"));
    std::vector<std::byte> tail(static_cast<size_t>(std::min(size, kEndBytes + kLongestComment)));
    const int64_t tail_begin = size - static_cast<int64_t>(tail.size());
    INVAR_TRY(file_.read_at(tail_begin, tail));
    for (auto at = static_cast<int64_t>(tail.size()) - kEndBytes; at >= 0; --at) {
      const std::byte* record = tail.data() + at;
      if (u32(record) != kEnd || at + kEndBytes + u16(record + 20) != static_cast<int64_t>(tail.size())) continue;
      return use_end(record, tail_begin + at);
    }
    return bad("zip.truncated", "has no zip directory at its end: file is truncated");
  }

  Status use_end(const std::byte* record, int64_t end_at) {
    uint64_t count = u16(record + 10), bytes = u32(record + 12), begin = u32(record + 16);
    int64_t behind = end_at;  // where the directory has to end at the latest
    std::byte locator[kLocatorBytes];
    if (end_at >= kLocatorBytes) {
      INVAR_TRY(file_.read_at(end_at - kLocatorBytes, locator));
      if (u32(locator) == kZip64Locator) {
        const uint64_t at = u64(locator + 8);
        if (at > static_cast<uint64_t>(end_at - kLocatorBytes) ||
            end_at - kLocatorBytes - static_cast<int64_t>(at) < kZip64EndBytes) {
          return bad("zip.bad_directory", cat("its zip64 end record should begin at byte ", at));
        }
        std::byte zip64[kZip64EndBytes];
        INVAR_TRY(file_.read_at(static_cast<int64_t>(at), zip64));
        if (u32(zip64) != kZip64End) return bad("zip.bad_directory", "its zip64 end record is damaged");
        count = u64(zip64 + 32), bytes = u64(zip64 + 40), begin = u64(zip64 + 48);
        behind = static_cast<int64_t>(at);
      }
    }
    if (begin > static_cast<uint64_t>(behind) || bytes > static_cast<uint64_t>(behind) - begin) {
      return bad("zip.bad_directory", cat("its directory of ", bytes, " bytes from byte ", begin,
                                          " does not end before byte ", behind, ": file is damaged"));
    }
    if (bytes > static_cast<uint64_t>(limit_)) {
      return bad("zip.bad_directory", cat("its directory has ", bytes, " bytes; ", limit_, " are allowed"));
    }
    if (count > bytes / kDirectoryBytes) {
      return bad("zip.bad_directory", cat("its directory of ", bytes, " bytes cannot hold ", count, " entries"));
    }
    directory_begin_ = static_cast<int64_t>(begin);
    directory_.resize(static_cast<size_t>(bytes));
    count_ = count;
    return file_.read_at(directory_begin_, directory_);
  }

  Status read_directory() {
    archive_.entries_.reserve(count_);
    headers_.reserve(count_);
    const std::byte* at = directory_.data();
    const std::byte* const end = at + directory_.size();
    for (uint64_t i = 0; i < count_; ++i) {
      if (end - at < kDirectoryBytes || u32(at) != kDirectoryHeader) {
        return bad("zip.bad_directory", cat("entry ", i, " of ", count_, " of its directory is damaged"));
      }
      const int64_t name_bytes = u16(at + 28), extra_bytes = u16(at + 30), comment_bytes = u16(at + 32);
      const int64_t record = kDirectoryBytes + name_bytes + extra_bytes + comment_bytes;
      if (end - at < record) {
        return bad("zip.bad_directory", cat("entry ", i, " of ", count_, " of its directory is damaged"));
      }
      INVAR_TRY(read_entry(at, name_bytes, extra_bytes));
      at += record;
    }
    if (at != end) return bad("zip.bad_directory", cat("its directory has ", end - at, " bytes behind its entries"));
    return {};
  }

  Status read_entry(const std::byte* at, int64_t name_bytes, int64_t extra_bytes) {
    ZipEntry entry;
    entry.name.assign(reinterpret_cast<const char*>(at + kDirectoryBytes), static_cast<size_t>(name_bytes));
    entry.crc = u32(at + 16);
    uint64_t packed = u32(at + 20), size = u32(at + 24), header = u32(at + 42);
    INVAR_TRY(read_zip64(entry, at + kDirectoryBytes + name_bytes, extra_bytes, &packed, &size, &header));
    if (!is_safe_name(entry.name)) return bad_entry("zip.unsafe_name", entry, "has a name that leaves the archive");
    if ((u16(at + 8) & kEncrypted) != 0) return bad_entry("zip.encrypted", entry, "is encrypted");
    if (u16(at + 10) != 0) {
      return bad_entry("zip.compressed", entry,
                       cat("is compressed (method ", u16(at + 10), "); only entries stored as they are can be read"));
    }
    if (packed != size) {
      return bad_entry("zip.bad_directory", entry, cat("is stored as it is and has ", packed, " and ", size, " bytes"));
    }
    const auto limit = static_cast<uint64_t>(directory_begin_);
    if (header > limit || size > limit - header || limit - header - size < kLocalBytes) {
      return bad_entry(
          "zip.truncated", entry,
          cat("of ", size, " bytes at byte ", header, " does not end before the directory at byte ", directory_begin_));
    }
    entry.size = static_cast<int64_t>(size);
    headers_.push_back(static_cast<int64_t>(header));
    archive_.entries_.push_back(std::move(entry));
    return {};
  }

  // The zip64 field holds, in this order, only those numbers that are all ones in the record itself.
  Status read_zip64(const ZipEntry& entry, const std::byte* at, int64_t bytes, uint64_t* packed, uint64_t* size,
                    uint64_t* header) const {
    constexpr uint64_t kElsewhere = 0xffffffff;
    while (bytes >= 4) {
      const int64_t length = u16(at + 2);
      if (length > bytes - 4) return bad_entry("zip.bad_directory", entry, "has a damaged extra field");
      if (u16(at) == kZip64Extra) {
        const std::byte* field = at + 4;
        int64_t left = length;
        for (uint64_t* value : {size, packed, header}) {
          if (*value != kElsewhere) continue;
          if (left < 8) return bad_entry("zip.bad_directory", entry, "has a damaged zip64 field");
          *value = u64(field);
          field += 8;
          left -= 8;
        }
        return {};
      }
      at += 4 + length;
      bytes -= 4 + length;
    }
    return {};
  }

  // Local headers say where the data begins. In the order of their bytes no entry may reach into the next.
  Status check_entries() {
    auto& entries = archive_.entries_;
    std::vector<size_t> order(entries.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [this](size_t a, size_t b) { return headers_[a] < headers_[b]; });
    std::vector<std::byte> local;
    int64_t behind = 0;
    for (const size_t i : order) {
      ZipEntry& entry = entries[i];
      if (headers_[i] < behind) {
        return bad_entry("zip.overlap", entry,
                         cat("begins at byte ", headers_[i], ", inside the entry that ends at byte ", behind));
      }
      local.resize(static_cast<size_t>(kLocalBytes));
      INVAR_TRY(file_.read_at(headers_[i], local));
      if (u32(local.data()) != kLocalHeader) {
        return bad_entry("zip.bad_directory", entry, cat("has no header at byte ", headers_[i]));
      }
      const int64_t name_bytes = u16(local.data() + 26), extra_bytes = u16(local.data() + 28);
      entry.begin = headers_[i] + kLocalBytes + name_bytes + extra_bytes;
      if (entry.begin > directory_begin_ - entry.size) {
        return bad_entry("zip.truncated", entry,
                         cat("of ", entry.size, " bytes at byte ", entry.begin,
                             " does not end before the directory at byte ", directory_begin_));
      }
      std::string name(static_cast<size_t>(name_bytes), '\0');
      INVAR_TRY(file_.read_at(headers_[i] + kLocalBytes, std::as_writable_bytes(std::span(name))));
      if (name != entry.name) {
        return bad_entry("zip.bad_directory", entry, cat("is called ", in_quotes(name), " in its own header"));
      }
      behind = entry.begin + entry.size;
    }
    return {};
  }

  const RandomAccessFile& file_;
  int64_t limit_;
  ZipArchive archive_;
  std::vector<std::byte> directory_;
  std::vector<int64_t> headers_;  // where each entry's local header begins
  int64_t directory_begin_ = 0;
  uint64_t count_ = 0;
};

bool ZipArchive::is_zip(std::span<const std::byte> head) {
  return head.size() >= 4 && (u32(head.data()) == kLocalHeader || u32(head.data()) == kEnd);
}

Result<ZipArchive> ZipArchive::read(const RandomAccessFile& file, int64_t directory_bytes) {
  return ZipReader(file, directory_bytes).run();
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const ZipEntry& entry, std::string_view n) { return entry.name < n; });
  return it != entries_.end() && it->name == name ? &*it : nullptr;
}

}  // namespace invar
