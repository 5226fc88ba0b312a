// Conversions of a part of a checkpoint, and conversions that remove their source on the way.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/memory_files.h"
#include "core/checkpoint/convert.h"
#include "core/checkpoint/sha256.h"
#include "core/checkpoint/test_checkpoint.h"
#include "core/checkpoint/verify.h"
#include "core/container/checkpoint_folder.h"

namespace invar {
namespace {

using Json = nlohmann::json;

std::map<std::string, std::string> below(const MemoryFiles& files, const std::string& folder) {
  std::map<std::string, std::string> found;
  for (const auto& [path, bytes] : files.snapshot()) {
    if (path.starts_with(folder + "/")) found[path.substr(folder.size())] = bytes;
  }
  return found;
}

class Partial : public testing::Test {
 protected:
  Partial() {
    TestCheckpoint made;
    made.add_codes("l.q_proj.weight", DType::kE4M3FN, {40, 72}, 4).add_scales("l.q_proj.weight_scale_inv", {3, 5}, 5);
    made.add_codes("l.up_proj.weight", DType::kE4M3FN, {40, 72}, 6).add_scales("l.up_proj.weight_scale_inv", {3, 5}, 7);
    made.add_f32("l.up_proj.input_scale", {1}, {0.5f}).add_f32("l.q_proj.input_scale", {1}, {0.25f});
    made.add_bf16("norm.weight", {40}, 8);
    made.write(files_, "/in", kBlockConfig);
  }

  Result<v1::ConvertReport> run(std::vector<std::string> only, v1::TargetFormat target = v1::TARGET_FORMAT_BF16) {
    v1::ConvertConfig config;
    config.set_source("/in");
    config.set_destination("/out");
    config.set_target(target);
    config.set_verify(true);
    for (std::string& pattern : only) config.add_only(std::move(pattern));
    return convert(config, {files_, pool_});
  }
  Result<v1::VerifyReport> proof(std::vector<std::string> only) {
    v1::VerifyConfig config;
    config.set_source("/in");
    config.set_destination("/out");
    for (std::string& pattern : only) config.add_only(std::move(pattern));
    return verify(config, {files_, pool_});
  }
  Json config_of(const std::string& folder) {
    return Json::parse(*read_text(files_, folder + "/config.json", 1 << 20));
  }
  std::vector<std::byte> bytes_of(const std::string& folder, const std::string& tensor) {
    const auto opened = CheckpointFolder::open(files_, folder);
    EXPECT_TRUE(opened.ok());
    const TensorInfo* found = opened->find(tensor);
    EXPECT_NE(found, nullptr) << tensor;
    return found == nullptr ? std::vector<std::byte>() : *opened->read_all(*found);
  }

  MemoryFiles files_;
  ThreadPool pool_{2};
};

TEST_F(Partial, ConvertsWhatIsNamedAndKeepsTheRestWithItsScales) {
  for (const auto target : {v1::TARGET_FORMAT_BF16, v1::TARGET_FORMAT_FP32}) {
    ASSERT_TRUE(files_.remove_all("/out").ok());
    const auto report = run({"*.q_proj"}, target);
    ASSERT_TRUE(report.ok()) << report.status().message();
    std::map<std::string, std::string> rules;
    for (const auto& line : report->tensors()) rules[line.name()] = line.rule();
    EXPECT_EQ(rules["l.q_proj.weight"], "block_scale");
    EXPECT_EQ(rules["l.q_proj.weight_scale_inv"], "scale");
    EXPECT_EQ(rules["l.q_proj.input_scale"], "drop");
    for (const char* kept : {"l.up_proj.weight", "l.up_proj.weight_scale_inv", "l.up_proj.input_scale"}) {
      EXPECT_EQ(rules[kept], "kept");
      EXPECT_EQ(bytes_of("/out", kept), bytes_of("/in", kept)) << kept;
    }
    const auto proved = proof({"*.q_proj"});
    ASSERT_TRUE(proved.ok());
    EXPECT_TRUE(proved->passed()) << proved->ShortDebugString();
  }
}

TEST_F(Partial, LeavesAConfigThatDescribesTheRest) {
  ASSERT_TRUE(run({"l.q_proj.weight"}).ok());
  const Json before = config_of("/in"), after = config_of("/out");
  EXPECT_EQ(after["quantization_config"]["quant_method"], "fp8");
  EXPECT_EQ(after["quantization_config"]["weight_block_size"], before["quantization_config"]["weight_block_size"]);
  EXPECT_EQ(after["quantization_config"]["modules_to_not_convert"], Json::array({"l.q_proj"}));
  // And the rest can be converted later, to what one conversion gives.
  v1::ConvertConfig config;
  config.set_source("/out");
  config.set_destination("/rest");
  ASSERT_TRUE(convert(config, {files_, pool_}).ok());
  config.set_source("/in");
  config.set_destination("/whole");
  ASSERT_TRUE(convert(config, {files_, pool_}).ok());
  for (const char* name : {"l.q_proj.weight", "l.up_proj.weight", "norm.weight"}) {
    EXPECT_EQ(bytes_of("/rest", name), bytes_of("/whole", name)) << name;
  }
}

TEST_F(Partial, OfEverythingIsAWholeConversion) {
  ASSERT_TRUE(run({"l.*"}).ok());
  EXPECT_FALSE(config_of("/out").contains("quantization_config"));
}

TEST_F(Partial, RefusesPatternsAndConfigsThatCannotBeMeant) {
  const auto unmatched = run({"*.q_proj", "*.k_proj"});
  EXPECT_EQ(unmatched.status().reason(), "convert.pattern_matches_nothing");
  EXPECT_NE(unmatched.status().message().find("*.k_proj"), std::string::npos);
  EXPECT_EQ(run({"*"}, v1::TARGET_FORMAT_FP8_BLOCK).status().reason(), "convert.unsupported_option");
  ASSERT_TRUE(
      write_text_atomically(files_, "/in/config.json",
                            R"({"quantization_config": {"quant_method": "own", "weight_block_size": [16, 16]}})")
          .ok());
  EXPECT_EQ(run({"*.q_proj"}).status().reason(), "convert.partial_unsupported");
  EXPECT_FALSE(files_.exists("/out"));
}

TEST_F(Partial, IsNotTheSameForVerificationAsAWholeOne) {
  ASSERT_TRUE(run({"*.q_proj"}).ok());
  const auto whole = proof({});
  ASSERT_TRUE(whole.ok());
  EXPECT_FALSE(whole->passed());
  EXPECT_FALSE(proof({"*.up_proj"})->passed());
}

TEST(Sha256, GivesTheDigestsOfTheStandard) {
  Sha256 empty, abc, long_one;
  abc.update(std::as_bytes(std::span("abc", 3)));
  EXPECT_EQ(abc.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(empty.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::string thousand(1000, 'a');
  for (int i = 0; i < 1000; ++i) long_one.update(std::as_bytes(std::span(thousand)));
  EXPECT_EQ(long_one.hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_F(Partial, TheFullProofCountsEveryCodeAndNamesTheStoredBytes) {
  v1::ConvertConfig config;
  config.set_source("/in");
  config.set_destination("/out");
  config.set_proof(v1::PROOF_FULL);
  const auto report = convert(config, {files_, pool_});
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->histograms_size(), 1);
  const v1::CodeHistogram& histogram = report->histograms(0);
  EXPECT_EQ(histogram.kind(), "block_scale F8_E4M3");
  EXPECT_EQ(histogram.tensors(), 2);
  std::vector<int64_t> expected(256);
  for (const char* name : {"l.q_proj.weight", "l.up_proj.weight"}) {
    for (const std::byte code : bytes_of("/in", name)) ++expected[static_cast<size_t>(code)];
  }
  EXPECT_EQ(std::vector<int64_t>(histogram.counts().begin(), histogram.counts().end()), expected);
  int64_t bytes = 0;
  for (const auto& line : report->tensors()) {
    if (line.new_name().empty() && line.has_new_name()) continue;  // used up
    for (const auto& [folder, digest] : {std::pair("/in", line.source_sha256()), {"/out", line.target_sha256()}}) {
      Sha256 hash;
      hash.update(bytes_of(folder, line.name()));
      EXPECT_EQ(digest, hash.hex()) << folder << " " << line.name();
      bytes += static_cast<int64_t>(bytes_of(folder, line.name()).size());
    }
  }
  EXPECT_EQ(report->proof_bytes(), bytes);
}

class InPlace : public testing::Test {
 protected:
  static constexpr int kFiles = 3;

  // The second file's weight has its scales in the third.
  static void write_source(FileSystem& files) {
    TestCheckpoint parts[kFiles];
    parts[0]
        .add_codes("l.q_proj.weight", DType::kE4M3FN, {40, 72}, 4)
        .add_scales("l.q_proj.weight_scale_inv", {3, 5}, 5);
    parts[0].add_bf16("embed.weight", {32, 40}, 3);
    parts[1].add_codes("l.k_proj.weight", DType::kE4M3FN, {40, 72}, 6);
    parts[2].add_scales("l.k_proj.weight_scale_inv", {3, 5}, 7).add_bf16("norm.weight", {40}, 8);
    Json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", Json::object()}};
    for (int i = 0; i < kFiles; ++i) {
      parts[i].write(files, "/in", kBlockConfig);
      const std::string name = cat("model-0000", i + 1, "-of-00003.safetensors");
      ASSERT_TRUE(files.rename("/in/model.safetensors", "/in/" + name).ok());
      const auto opened = CheckpointFolder::open(files, "/in/" + name);
      for (const TensorInfo& tensor : opened->tensors()) index["weight_map"][tensor.name] = name;
    }
    ASSERT_TRUE(write_text_atomically(files, "/in/model.safetensors.index.json", index.dump()).ok());
  }

  Result<v1::ConvertReport> run(FileSystem& files, bool remove, v1::TargetFormat target = v1::TARGET_FORMAT_BF16) {
    v1::ConvertConfig config;
    config.set_source("/in");
    config.set_destination("/out");
    config.set_remove_source(remove);
    config.set_target(target);
    return convert(config, {files, pool_});
  }
  static int weight_files(FileSystem& files, const std::string& folder) {
    int count = 0;
    if (!files.exists(folder)) return 0;
    const auto entries = files.list(folder);
    for (const DirEntry& entry : *entries) count += entry.name.ends_with(".safetensors");
    return count;
  }

  ThreadPool pool_{2};
};

TEST_F(InPlace, GivesTheSameResultAndRemovesEveryFileOfTheSource) {
  MemoryFiles files, reference;
  write_source(files);
  write_source(reference);
  ASSERT_TRUE(run(reference, false).ok());
  const auto report = run(files, true);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(below(files, "/out"), below(reference, "/out"));
  EXPECT_EQ(weight_files(files, "/in"), 0);
  EXPECT_TRUE(files.exists("/in/config.json"));
  EXPECT_TRUE(report->verification().passed());
  EXPECT_EQ(report->verification().tensors(), 4);
}

TEST_F(InPlace, ARunThatIsKilledAtAnyStepIsFinishedByTheSameCommand) {
  MemoryFiles reference;
  write_source(reference);
  ASSERT_TRUE(run(reference, false).ok());
  bool went_on_without_a_source_file = false;
  int64_t steps = 0;
  for (int64_t step = 0;; ++step, ++steps) {
    MemoryFiles files;
    write_source(files);
    FaultyFiles killed(files, step, /*stays_dead=*/true);
    const bool finished = run(killed, true).ok();
    if (!finished && !files.exists("/out")) {
      const int left = weight_files(files, "/in");
      const auto again = run(files, true);
      ASSERT_TRUE(again.ok()) << step << ": " << again.status().message();
      went_on_without_a_source_file = went_on_without_a_source_file || left < kFiles;
    }
    ASSERT_EQ(below(files, "/out"), below(reference, "/out")) << step;
    if (finished) break;
    ASSERT_LT(step, 1000);
  }
  EXPECT_TRUE(went_on_without_a_source_file) << steps;
}

// A disk that fails once (full, a read error elsewhere) and then works again.
TEST_F(InPlace, AnErrorAtAnyStepLosesNothing) {
  MemoryFiles reference;
  write_source(reference);
  ASSERT_TRUE(run(reference, false).ok());
  for (int64_t step = 0; step < 1000; ++step) {
    MemoryFiles files;
    write_source(files);
    FaultyFiles faulty(files, step, /*stays_dead=*/false);
    const bool finished = run(faulty, true).ok();
    if (!finished && !files.exists("/out")) {
      const auto again = run(files, true);
      ASSERT_TRUE(again.ok()) << step << ": " << again.status().message();
    }
    ASSERT_EQ(below(files, "/out"), below(reference, "/out")) << step;
    if (finished) break;
  }
}

TEST_F(InPlace, AnotherConversionCannotEmptyTheOnlyCopy) {
  MemoryFiles files;
  write_source(files);
  for (int64_t step = 0; weight_files(files, "/in") == kFiles; ++step) {
    ASSERT_LT(step, 1000);
    ASSERT_TRUE(files.remove_all("/out.partial").ok());
    FaultyFiles killed(files, step, /*stays_dead=*/true);
    ASSERT_FALSE(run(killed, true).ok());
  }
  const auto other = run(files, true, v1::TARGET_FORMAT_FP32);
  EXPECT_EQ(other.status().reason(), "output.only_copy") << other.status().message();
  // Nor does the rest pass for a whole checkpoint.
  EXPECT_EQ(run(files, false).status().reason(), "index.missing_shard");
  EXPECT_TRUE(run(files, true).ok());
  EXPECT_EQ(weight_files(files, "/out"), kFiles);
}

TEST_F(InPlace, RefusesWhatItCouldNotFinish) {
  MemoryFiles files;
  write_source(files);
  EXPECT_EQ(run(files, true, v1::TARGET_FORMAT_FP8_BLOCK).status().reason(), "convert.unsupported_option");
  ASSERT_TRUE(files.remove_all("/in/model.safetensors.index.json").ok());
  EXPECT_EQ(run(files, true).status().reason(), "convert.in_place_unsupported");
  EXPECT_EQ(weight_files(files, "/in"), kFiles);
  EXPECT_FALSE(files.exists("/out.partial"));
}

}  // namespace
}  // namespace invar
