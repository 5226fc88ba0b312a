#include "core/container/zip_archive.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/base/memory_files.h"

namespace invar {
namespace {

std::string little(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(i < 8 ? value >> (8 * i) & 0xff : 0);
  return text;
}

struct Entry {
  std::string name, data;
  uint16_t flags = 0, method = 0;
  std::string local_name = {};  // other than in the directory
  uint64_t packed = 0, size = 0, header = 0;
};

// Writes a zip by hand; `change` may spoil the entries between the bodies and the directory.
std::string make_zip(std::vector<Entry> entries, bool zip64 = false,
                     const std::function<void(std::vector<Entry>&)>& change = {}) {
  std::string file;
  for (Entry& entry : entries) {
    entry.header = file.size();
    entry.packed = entry.size = entry.data.size();
    const std::string name = entry.local_name.empty() ? entry.name : entry.local_name;
    file += "PK\3\4" + little(20, 2) + little(entry.flags, 2) + little(entry.method, 2) + little(0, 16) +
            little(name.size(), 2) + little(4, 2) + name + "FB" + little(0, 2) + entry.data;
    if ((entry.flags & 8) != 0) file += "PK\7\10" + little(0, 12);
  }
  if (change) change(entries);
  std::string directory;
  for (const Entry& entry : entries) {
    const std::string extra =
        zip64 ? little(1, 2) + little(24, 2) + little(entry.size, 8) + little(entry.packed, 8) + little(entry.header, 8)
              : std::string();
    const auto number = [&](uint64_t value) { return little(zip64 ? 0xffffffff : value, 4); };
    directory += "PK\1\2" + little(20, 2) + little(20, 2) + little(entry.flags, 2) + little(entry.method, 2) +
                 little(0, 4) + little(0, 4) + number(entry.packed) + number(entry.size) +
                 little(entry.name.size(), 2) + little(extra.size(), 2) + little(0, 10) + number(entry.header) +
                 entry.name + extra;
  }
  const size_t begin = file.size();
  file += directory;
  if (zip64) {
    const size_t end = file.size();
    file += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) + little(entries.size(), 8) +
            little(entries.size(), 8) + little(directory.size(), 8) + little(begin, 8);
    file += "PK\6\7" + little(0, 4) + little(end, 8) + little(1, 4);
    return file + "PK\5\6" + little(0, 4) + little(0xffff, 2) + little(0xffff, 2) + little(0xffffffff, 4) +
           little(0xffffffff, 4) + little(0, 2);
  }
  return file + "PK\5\6" + little(0, 4) + little(entries.size(), 2) + little(entries.size(), 2) +
         little(directory.size(), 4) + little(begin, 4) + little(0, 2);
}

Result<ZipArchive> read(const std::string& bytes) { return ZipArchive::read(*memory_file("x.zip", bytes)); }
std::string reason(const std::string& bytes) { return read(bytes).status().reason(); }

TEST(ZipArchive, FindsStoredEntries) {
  for (const bool zip64 : {false, true}) {
    const std::string bytes = make_zip({{"m/data.pkl", "abc"}, {"m/data/0", "defgh", 8}, {"m/empty", ""}}, zip64);
    const auto zip = read(bytes);
    ASSERT_TRUE(zip.ok()) << zip.status().message();
    ASSERT_EQ(zip->entries().size(), 3u);
    const ZipEntry* entry = zip->find("m/data/0");
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(bytes.substr(static_cast<size_t>(entry->begin), static_cast<size_t>(entry->size)), "defgh");
    EXPECT_EQ(zip->find("m/data"), nullptr);
  }
}

TEST(ZipArchive, ACommentMayFollow) {
  std::string bytes = make_zip({{"a", "1"}});
  bytes.replace(bytes.size() - 2, 2, little(5, 2));
  EXPECT_TRUE(read(bytes + "hello").ok());
  EXPECT_EQ(reason(bytes), "zip.truncated");
}

TEST(ZipArchive, RefusesBombsAndOverlaps) {
  EXPECT_EQ(reason(make_zip({{"a", "xxxx", 0, 8}})), "zip.compressed");
  EXPECT_EQ(reason(make_zip({{"a", "xxxx", 1}})), "zip.encrypted");
  // A small body declared large, and many entries over one body.
  EXPECT_EQ(reason(make_zip({{"a", "xxxx"}}, true, [](auto& e) { e[0].size = uint64_t{1} << 40; })),
            "zip.bad_directory");
  EXPECT_EQ(reason(make_zip({{"a", "xxxx"}}, true, [](auto& e) { e[0].size = e[0].packed = uint64_t{1} << 40; })),
            "zip.truncated");
  EXPECT_EQ(reason(make_zip({{"a", "xxxx"}, {"b", "yy"}}, false, [](auto& e) { e[1].header = e[0].header; })),
            "zip.overlap");
  EXPECT_EQ(reason(make_zip({{"a", "xxxx"}, {"b", "yy"}}, false, [](auto& e) { e[0].size = e[0].packed = 20; })),
            "zip.overlap");
  EXPECT_EQ(reason(make_zip({{"a", "x"}}, true, [](auto& e) { e[0].header = ~uint64_t{0} - 8; })), "zip.truncated");
}

TEST(ZipArchive, RefusesNamesThatLeaveTheArchive) {
  for (const char* name : {"../a", "a/../b", "/etc/passwd", "a\\b", "c:x", "..", "a/.."}) {
    EXPECT_EQ(reason(make_zip({{name, "x"}})), "zip.unsafe_name") << name;
  }
  EXPECT_TRUE(read(make_zip({{"a/..b/c..", "x"}})).ok());
  EXPECT_EQ(reason(make_zip({{"a", "x"}, {"a", "y"}})), "zip.duplicate_name");
  EXPECT_EQ(reason(make_zip({{"a", "x", 0, 0, "b"}})), "zip.bad_directory");
}

TEST(ZipArchive, EveryCutAndEveryFlippedByteIsRefusedOrStaysInside) {
  for (const bool zip64 : {false, true}) {
    const std::string whole = make_zip({{"m/data.pkl", "abc"}, {"m/data/0", "defgh"}}, zip64);
    for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(read(whole.substr(0, n)).ok()) << n;
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const int value : {0, 0xff, whole[at] ^ 1, whole[at] ^ 0x80}) {
        std::string bytes = whole;
        bytes[at] = static_cast<char>(value);
        const auto zip = read(bytes);
        if (!zip.ok()) continue;
        for (const ZipEntry& entry : zip->entries()) {
          EXPECT_LE(entry.begin + entry.size, static_cast<int64_t>(bytes.size()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace invar
