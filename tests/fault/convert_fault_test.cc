// A conversion from each kind of container that meets a full disk, a kill or a read error at every step it makes:
// the source stays as it was, nothing half done stands under the final name, and the next run gives the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "core/base/memory_files.h"
#include "core/checkpoint/convert.h"

namespace invar {
namespace {

// Fails the read number `fail_at` of all files, counted from 0; -1: none.
class FaultyReads : public FaultyFiles {
 public:
  FaultyReads(FileSystem& below, int64_t fail_at) : FaultyFiles(below, -1, false), fail_at_(fail_at) {}
  int64_t reads() const { return reads_.load(); }

  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path) override {
    INVAR_ASSIGN(auto file, FaultyFiles::open(path));
    return std::unique_ptr<RandomAccessFile>(std::make_unique<Reader>(*this, std::move(file)));
  }

 private:
  class Reader : public RandomAccessFile {
   public:
    Reader(FaultyReads& owner, std::unique_ptr<RandomAccessFile> file) : owner_(owner), file_(std::move(file)) {}
    const std::string& path() const override { return file_->path(); }
    int64_t size() const override { return file_->size(); }
    int64_t modified_time() const override { return file_->modified_time(); }
    Status read_at(int64_t offset, std::span<std::byte> out) const override {
      if (owner_.reads_++ == owner_.fail_at_) {
        return Error(Code::kUnavailable, "file.read_failed", cat(path(), ": input/output error"));
      }
      return file_->read_at(offset, out);
    }

   private:
    FaultyReads& owner_;
    std::unique_ptr<RandomAccessFile> file_;
  };

  std::atomic<int64_t> reads_{0};
  int64_t fail_at_;
};

void copy(const std::string& from, const std::string& to, MemoryFiles& files) {
  const auto entries = posix_files().list(from);
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  for (const DirEntry& entry : *entries) {
    const std::string path = join_path(from, entry.name);
    if (posix_files().is_directory(path)) {
      copy(path, join_path(to, entry.name), files);
    } else {
      files.put(join_path(to, entry.name), *read_text(posix_files(), path, 1 << 24));
    }
  }
}

std::map<std::string, std::string> below(const MemoryFiles& files, const std::string& folder) {
  std::map<std::string, std::string> state;
  for (const auto& [path, bytes] : files.snapshot()) {
    if (path.starts_with(folder)) state[path] = bytes;
  }
  return state;
}

class Faults : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(copy(cat("tests/cases/", GetParam(), "/input"), "/in", source_));
    ASSERT_TRUE(run(source_).ok());
    expected_ = below(source_, "/out/");
    ASSERT_TRUE(source_.remove_all("/out").ok());
    before_ = below(source_, "/in");
  }

  Status run(FileSystem& files) {
    v1::ConvertConfig config;
    config.set_source("/in");
    config.set_destination("/out");
    return convert(config, {files, pool_}).status();
  }

  // After a fault: all or nothing, the source as it was, and a run without faults succeeds.
  void check(MemoryFiles& files, const Status& status) {
    EXPECT_EQ(below(files, "/in"), before_);
    if (files.exists("/out")) {
      EXPECT_EQ(below(files, "/out/"), expected_);
    } else {
      EXPECT_FALSE(status.ok());
    }
    if (files.exists("/out")) return;
    const Status again = run(files);
    ASSERT_TRUE(again.ok()) << again.message();
    EXPECT_EQ(below(files, "/out/"), expected_);
    EXPECT_FALSE(files.exists("/out.partial"));
  }

  void restore(MemoryFiles& files) {
    for (const auto& [path, bytes] : before_) {
      if (!path.ends_with('/')) files.put(path, bytes);
    }
  }

  MemoryFiles source_;
  ThreadPool pool_{2};
  std::map<std::string, std::string> before_, expected_;
};

TEST_P(Faults, AFullDiskOrAKillAtAnyWriteLosesNothing) {
  for (const bool killed : {false, true}) {
    // Every step of a small run; a sample of a long one, so that the test stays short.
    FaultyFiles counting(source_, -1, killed);
    ASSERT_TRUE(run(counting).ok());
    ASSERT_TRUE(source_.remove_all("/out").ok());
    const int64_t step = std::max<int64_t>(1, counting.operations() / 30);
    int64_t steps = 0;
    for (int64_t fail_at = 0; fail_at < counting.operations(); fail_at += step) {
      SCOPED_TRACE(testing::Message() << (killed ? "killed" : "disk full") << " at operation " << fail_at);
      MemoryFiles files;
      restore(files);
      FaultyFiles faulty(files, fail_at, killed);
      const Status status = run(faulty);
      ++steps;
      check(files, status);
      if (!killed && !status.ok()) {
        EXPECT_EQ(status.reason(), "file.no_space") << status.message();
      }
      if (HasFailure()) return;
    }
    EXPECT_GE(steps, 6);
  }
}

TEST_P(Faults, AReadErrorAtAnyPlaceIsReportedAndLosesNothing) {
  FaultyReads counting(source_, -1);
  ASSERT_TRUE(run(counting).ok());
  ASSERT_TRUE(source_.remove_all("/out").ok());
  // Every read of a small run; a sample of a long one.
  const int64_t step = std::max<int64_t>(1, counting.reads() / 30);
  for (int64_t fail_at = 0; fail_at < counting.reads(); fail_at += step) {
    SCOPED_TRACE(testing::Message() << "read " << fail_at << " of " << counting.reads());
    MemoryFiles files;
    restore(files);
    FaultyReads faulty(files, fail_at);
    const Status status = run(faulty);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.reason(), "file.read_failed") << status.message();
    EXPECT_FALSE(files.exists("/out"));
    EXPECT_FALSE(files.exists("/out.partial"));
    check(files, status);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Faults,
                         testing::Values("trap-tail-block", "ok-torch-zip-fp8", "dcp-llama-2rank",
                                         "deepspeed-zero2-llama"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace invar
