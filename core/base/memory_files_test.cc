#include "core/base/memory_files.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

TEST(MemoryFiles, BehaveAsAFileSystem) {
  MemoryFiles files;
  EXPECT_EQ(files.create("/a/b/c.txt").status().reason(), "file.not_found");
  ASSERT_TRUE(files.make_directories("/a/b").ok());
  ASSERT_TRUE(write_text_atomically(files, "/a/b/c.txt", "hello").ok());
  EXPECT_EQ(*read_text(files, "/a/b/c.txt", 100), "hello");
  EXPECT_EQ(files.open("/a/b").status().reason(), "file.not_regular");
  ASSERT_TRUE(files.make_directories("/a/full").ok());
  files.put("/a/full/x", "1");
  EXPECT_FALSE(files.rename("/a/b", "/a/full").ok());
  ASSERT_TRUE(files.rename("/a/b", "/a/d").ok());
  EXPECT_EQ(*read_text(files, "/a/d/c.txt", 100), "hello");
  EXPECT_FALSE(files.exists("/a/b"));
  ASSERT_EQ(files.list("/a")->size(), 2u);
  EXPECT_TRUE(files.list("/a")->front().is_directory);
  ASSERT_TRUE(files.remove_all("/a/d").ok());
  EXPECT_FALSE(files.exists("/a/d/c.txt"));
  std::byte byte;
  EXPECT_EQ((*files.open("/a/full/x"))->read_at(1, {&byte, 1}).reason(), "file.short_read");
}

TEST(StagedDirectory, LeavesTheOldStateWhereverAWriteFails) {
  for (int64_t fail_at = 0;; ++fail_at) {
    MemoryFiles disk;
    disk.put("/models/other/keep.txt", "kept");
    FaultyFiles files(disk, fail_at, /*stays_dead=*/fail_at % 2 == 0);
    const auto write = [&]() -> Status {
      INVAR_ASSIGN(auto staged, StagedDirectory::create(files, "/models/new"));
      INVAR_TRY(write_text_atomically(files, join_path(staged.path(), "a.txt"), "text"));
      return staged.commit();
    };
    const Status status = write();
    EXPECT_EQ(*read_text(disk, "/models/other/keep.txt", 100), "kept");
    if (disk.exists("/models/new")) {
      EXPECT_EQ(*read_text(disk, "/models/new/a.txt", 100), "text");
    }
    if (status.ok()) {
      EXPECT_TRUE(disk.exists("/models/new"));
      EXPECT_GE(fail_at, 8);
      break;
    }
  }
}

}  // namespace
}  // namespace invar
