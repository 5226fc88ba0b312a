// Conversions that go on after a kill, or meet another run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/base/memory_files.h"
#include "core/checkpoint/convert.h"
#include "core/checkpoint/folder_lock.h"
#include "core/checkpoint/resumable_folder.h"
#include "core/checkpoint/test_checkpoint.h"

namespace invar {
namespace {

class Resumed : public testing::Test {
 protected:
  // Three files; the second one's weight has its scales in the third.
  static void write_source(FileSystem& files) {
    TestCheckpoint first, second, third;
    first.add_codes("l.q_proj.weight", DType::kE4M3FN, {40, 72}, 4).add_scales("l.q_proj.weight_scale_inv", {3, 5}, 5);
    first.add_bf16("embed.weight", {32, 40}, 3);
    second.add_codes("l.k_proj.weight", DType::kE4M3FN, {40, 72}, 6);
    third.add_scales("l.k_proj.weight_scale_inv", {3, 5}, 7).add_bf16("norm.weight", {40}, 8);
    int number = 0;
    for (const TestCheckpoint* part : {&first, &second, &third}) {
      part->write(files, "/in", kBlockConfig);
      const std::string name = cat("/in/model-0000", ++number, "-of-00003.safetensors");
      ASSERT_TRUE(files.rename("/in/model.safetensors", name).ok());
    }
  }

  Result<v1::ConvertReport> run(FileSystem& files, const std::string& to, int64_t threads = 0) {
    v1::ConvertConfig config;
    config.set_source("/in");
    config.set_destination(to);
    config.set_threads(threads);
    return convert(config, {files, pool_});
  }

  // Files below a folder, by name.
  static std::map<std::string, std::string> below(const MemoryFiles& files, const std::string& folder) {
    std::map<std::string, std::string> found;
    for (const auto& [path, bytes] : files.snapshot()) {
      if (path.starts_with(folder + "/")) found[path.substr(folder.size())] = bytes;
    }
    return found;
  }

  static std::string lines_of(const v1::ConvertReport& report) {
    std::string text;
    for (const auto& line : report.tensors()) text += line.SerializeAsString();
    return text;
  }

  // Files that the report says were taken over.
  static int taken_over(const v1::ConvertReport& report) {
    for (const auto& warning : report.warnings()) {
      if (warning.starts_with("convert.resumed: ")) return warning[17] - '0';
    }
    return 0;
  }

  ThreadPool pool_{2};
};

TEST_F(Resumed, GoOnAtTheFirstUnfinishedFileAfterAKillAtAnyStep) {
  MemoryFiles whole;
  write_source(whole);
  const auto uninterrupted = run(whole, "/out");
  ASSERT_TRUE(uninterrupted.ok()) << uninterrupted.status().message();
  EXPECT_EQ(taken_over(*uninterrupted), 0);
  const auto reference = below(whole, "/out");
  EXPECT_EQ(reference.count("/model-00003-of-00003.safetensors"), 1u);
  int most = 0;
  for (int64_t step = 0; step < 1000; ++step) {
    MemoryFiles files;
    write_source(files);
    FaultyFiles killed(files, step, /*stays_dead=*/true);
    if (run(killed, "/out").ok()) break;
    if (!files.exists("/out")) {
      // Threads and memory may differ from run to run.
      const auto report = run(files, "/out", 1);
      ASSERT_TRUE(report.ok()) << step << ": " << report.status().message();
      EXPECT_EQ(lines_of(*report), lines_of(*uninterrupted)) << step;
      EXPECT_FALSE(files.exists("/out.partial"));
      most = std::max(most, taken_over(*report));
    }
    EXPECT_EQ(below(files, "/out"), reference) << step;
  }
  EXPECT_EQ(most, 3) << "every file that was complete is taken over";
}

TEST_F(Resumed, StartAnewForAnotherTarget) {
  MemoryFiles files;
  write_source(files);
  int64_t step = 0;
  for (; step < 1000; ++step) {  // until a record lies in the journal
    FaultyFiles killed(files, step, /*stays_dead=*/true);
    ASSERT_FALSE(run(killed, "/out").ok());
    if (files.exists("/out.journal/model-00001-of-00003.safetensors.done")) break;
    ASSERT_TRUE(files.remove_all("/out.partial").ok());
  }
  v1::ConvertConfig config;
  config.set_source("/in");
  config.set_destination("/out");
  config.set_target(v1::TARGET_FORMAT_FP32);
  const auto report = convert(config, {files, pool_});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(taken_over(*report), 0);
  EXPECT_FALSE(files.exists("/out.journal"));
}

TEST(FolderLocks, KeepASecondRunOutUntilTheFirstEnds) {
  const std::string root = std::filesystem::path(std::getenv("TEST_TMPDIR")) / "lock";
  std::filesystem::remove_all(root);
  TestCheckpoint made;
  made.add_codes("a.weight", DType::kE4M3FN, {32, 32}, 1).add_scales("a.weight_scale", {32, 1}, 2);
  made.write(posix_files(), root + "/in", "");
  v1::ConvertConfig config;
  config.set_source(root + "/in");
  config.set_destination(root + "/out/");
  ThreadPool pool(1);
  {
    const auto held = FolderLock::take(posix_files(), root + "/out");
    ASSERT_TRUE(held.ok()) << held.status().message();
    const auto refused = convert(config, {posix_files(), pool});
    EXPECT_EQ(refused.status().reason(), "output.locked") << refused.status().message();
    EXPECT_FALSE(std::filesystem::exists(root + "/out.partial"));
  }
  ASSERT_TRUE(convert(config, {posix_files(), pool}).ok());
  EXPECT_FALSE(std::filesystem::exists(root + "/out.lock"));
}

TEST(ResumableFolders, EmptyWhatAnotherJobLeft) {
  MemoryFiles files;
  {
    auto folder = ResumableFolder::open(files, "/out", "job 1", true);
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE(write_text_atomically(files, "/out.partial/a", "x").ok());
    ASSERT_TRUE(folder->record("a", "line").ok());
    folder->keep();
  }
  {
    auto same = ResumableFolder::open(files, "/out", "job 1", true);
    ASSERT_TRUE(same.ok());
    ASSERT_NE(same->finished("a"), nullptr);
    EXPECT_EQ(*same->finished("a"), "line");
    same->keep();
  }
  auto other = ResumableFolder::open(files, "/out", "job 2", true);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->finished("a"), nullptr);
  EXPECT_FALSE(files.exists("/out.partial/a"));
  ASSERT_TRUE(other->commit().ok());
  EXPECT_TRUE(files.is_directory("/out"));
  EXPECT_FALSE(files.exists("/out.journal"));
}

}  // namespace
}  // namespace invar
