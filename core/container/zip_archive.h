// The directory of a zip file whose entries are stored without compression, as PyTorch writes them.
//
// Role: names to byte ranges, nothing else: the bytes are then read where they lie. Reading a directory is small, and a
// zip library would bring decompression, which is what a bomb needs; entries that are compressed or encrypted are
// refused instead.
// Checked before anything is believed: the end record, zip64 included, and the directory lie inside the file; every
// entry's local header agrees with the directory; entries lie in front of the directory and do not overlap each other
// or another's header; names are unique, relative and without "..". Data descriptors are allowed: the directory has the
// sizes.
// reasons, all with DATA_LOSS: zip.not_a_zip  zip.truncated  zip.bad_directory  zip.compressed  zip.encrypted
//   zip.overlap  zip.duplicate_name  zip.unsafe_name
// Thread rule: a value; safe to share once read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"

namespace invar {

struct ZipEntry {
  std::string name;
  int64_t begin = 0;  // of the data, in the file
  int64_t size = 0;
  uint32_t crc = 0;
};

class ZipArchive {
 public:
  // The first four bytes of a file that is a zip.
  static bool is_zip(std::span<const std::byte> head);

  static Result<ZipArchive> read(const RandomAccessFile& file, int64_t directory_bytes = 100'000'000);

  const std::vector<ZipEntry>& entries() const { return entries_; }  // sorted by name
  const ZipEntry* find(std::string_view name) const;                 // null when absent

 private:
  friend class ZipReader;
  std::vector<ZipEntry> entries_;
};

}  // namespace invar
