#include "core/container/checkpoint_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/base/memory_files.h"
#include "core/container/safetensors_writer.h"
#include "core/container/shard_plan.h"

namespace invar {
namespace {

void write_weights(FileSystem& files, const std::string& path, const std::vector<std::string>& names) {
  std::vector<TensorSpec> specs;
  for (const std::string& name : names) specs.push_back({name, DType::kU8, {2}});
  auto writer = SafetensorsWriter::create(files, path, specs);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  const std::byte bytes[2] = {std::byte{1}, std::byte{2}};
  for (const std::string& name : names) ASSERT_TRUE(writer->write(name, 0, bytes).ok());
  ASSERT_TRUE(writer->close(false).ok());
}

std::vector<std::string> reasons(const CheckpointFolder& folder) {
  std::vector<std::string> list;
  for (const Finding& finding : folder.findings()) list.push_back(finding.reason);
  return list;
}

class Folder : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(files.make_directories("/m").ok()); }
  std::string reason() { return CheckpointFolder::open(files, "/m").status().reason(); }
  MemoryFiles files;
};

TEST_F(Folder, UnitesShardsAndListsSideFiles) {
  write_weights(files, "/m/model-00001-of-00002.safetensors", {"b", "a"});
  write_weights(files, "/m/model-00002-of-00002.safetensors", {"c"});
  files.put("/m/config.json", "{}");
  files.put("/m/pytorch_model.bin", "x");
  files.put("/m/model.safetensors.partial", "x");
  files.put("/m/training/state.safetensors", "x");
  const auto folder = CheckpointFolder::open(files, "/m/");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  ASSERT_EQ(folder->tensors().size(), 3u);
  EXPECT_EQ(folder->tensors()[0].name, "a");
  EXPECT_EQ(folder->file_name(*folder->find("c")), "model-00002-of-00002.safetensors");
  EXPECT_EQ(folder->find("d"), nullptr);
  EXPECT_EQ(folder->side_files(), std::vector<std::string>{"config.json"});
  EXPECT_EQ(*folder->side_text("config.json"), "{}");
  EXPECT_EQ(folder->side_text("params.json").status().reason(), "file.not_found");
  EXPECT_EQ(reasons(*folder), std::vector<std::string>{"folder.other_weights"});
  const auto bytes = folder->read_all(*folder->find("c"));
  EXPECT_EQ((*bytes)[1], std::byte{2});
}

TEST_F(Folder, ReportsWhereTheIndexDisagrees) {
  write_weights(files, "/m/model-00001-of-00002.safetensors", {"a", "b"});
  write_weights(files, "/m/model-00002-of-00002.safetensors", {"c", "d"});
  write_weights(files, "/m/stray.safetensors", {"e"});
  files.put("/m/model.safetensors.index.json",
            R"({"metadata":{"total_size":99,"more":{"deep":[1,{}]}},"weight_map":{
                "a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors",
                "c":"model-00002-of-00002.safetensors"},"note":[1,2]})");
  const auto folder = CheckpointFolder::open(files, "/m");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(folder->tensors().size(), 5u);
  EXPECT_EQ(reasons(*folder), (std::vector<std::string>{"index.wrong_shard", "index.total_size", "index.stray_shard",
                                                        "index.omits_tensors"}));
}

TEST_F(Folder, AnIndexOfItsOwnAgrees) {
  ShardPlan plan = ShardPlan::by_size({{"a", DType::kU8, {2}}, {"b", DType::kU8, {2}}}, 2);
  write_weights(files, "/m/" + plan.shards[0].file_name, {"a"});
  write_weights(files, "/m/" + plan.shards[1].file_name, {"b"});
  ASSERT_TRUE(write_index(files, "/m", plan).ok());
  const auto folder = CheckpointFolder::open(files, "/m");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_TRUE(folder->findings().empty());
}

TEST_F(Folder, RefusesIndexesThatAreNoIndexes) {
  write_weights(files, "/m/model.safetensors", {"a"});
  for (const char* text :
       {"", "[]", "{}", "{\"weight_map\":3}", "{\"weight_map\":\"x\"}", "{\"weight_map\":[]}", "{\"weight_map\":null}",
        "{\"weight_map\":{\"a\":[]}}", "{\"weight_map\":{\"a\":{\"b\":\"c\"}}}", "{\"weight_map\":{\"a\":null}}",
        "{\"weight_map\":{\"a\":\"model.safetensors\",\"a\":\"model.safetensors\"}}",
        "{\"weight_map\":{},\"weight_map\":{}}"}) {
    files.put("/m/model.safetensors.index.json", text);
    EXPECT_EQ(reason(), "index.bad") << text;
  }
  for (const char* name :
       {"/etc/passwd", "../x.safetensors", "sub/x.safetensors", "c:x", "..", "a\\\\b", "", "a\\u0000"}) {
    files.put("/m/model.safetensors.index.json", cat("{\"weight_map\":{\"a\":\"", name, "\"}}"));
    EXPECT_EQ(reason(), "index.unsafe_path") << name;
  }
}

TEST_F(Folder, ReadsConsolidatedFilesOnlyWhenAlone) {
  write_weights(files, "/m/consolidated.safetensors", {"layers.0.wq"});
  auto folder = CheckpointFolder::open(files, "/m");
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(folder->tensors().size(), 1u);
  EXPECT_TRUE(folder->findings().empty());
  write_weights(files, "/m/model.safetensors", {"a"});
  folder = CheckpointFolder::open(files, "/m");
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(folder->tensors()[0].name, "a");
  EXPECT_EQ(folder->files().size(), 1u);
  EXPECT_EQ(reasons(*folder), std::vector<std::string>{"folder.consolidated_skipped"});
}

TEST_F(Folder, OpensASingleFileWithTheModelsOwnSideFiles) {
  write_weights(files, "/m/model.safetensors", {"a"});
  write_weights(files, "/m/other.safetensors", {"a"});
  files.put("/m/config.json", "{}");
  files.put("/m/holiday.jpg", "");
  EXPECT_EQ(reason(), "folder.duplicate_tensor");
  const auto file = CheckpointFolder::open(files, "/m/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file->is_single_file());
  EXPECT_EQ(file->path(), "/m");
  EXPECT_EQ(file->side_files(), std::vector<std::string>{"config.json"});
}

TEST_F(Folder, SaysWhatIsMissing) {
  EXPECT_EQ(reason(), "folder.no_weights");
  files.put("/m/model.onnx", "x");
  EXPECT_NE(CheckpointFolder::open(files, "/m").status().message().find("model.onnx"), std::string::npos);
  EXPECT_EQ(CheckpointFolder::open(files, "/none").status().reason(), "file.not_found");
}

TEST(FolderLinks, StayInsideOrInTheCache) {
  FileSystem& files = posix_files();
  const std::string root = join_path(::testing::TempDir(), "links");
  ASSERT_TRUE(files.remove_all(root).ok());
  for (const char* name : {"m", "cache/blobs", "cache/snapshots/abc"}) {
    ASSERT_TRUE(files.make_directories(join_path(root, name)).ok());
  }
  write_weights(files, root + "/outside.safetensors", {"a"});
  write_weights(files, root + "/cache/blobs/1234", {"a"});
  ASSERT_EQ(::symlink("../outside.safetensors", (root + "/m/model.safetensors").c_str()), 0);
  ASSERT_EQ(::symlink("../../blobs/1234", (root + "/cache/snapshots/abc/model.safetensors").c_str()), 0);

  const auto leaving = CheckpointFolder::open(files, root + "/m");
  EXPECT_EQ(leaving.status().reason(), "index.unsafe_path");
  EXPECT_NE(leaving.status().message().find("model.safetensors"), std::string::npos);
  CheckpointFolder::Options options;
  options.follow_links = true;
  EXPECT_TRUE(CheckpointFolder::open(files, root + "/m", options).ok());
  const auto cached = CheckpointFolder::open(files, root + "/cache/snapshots/abc");
  EXPECT_TRUE(cached.ok()) << cached.status().message();

  ASSERT_TRUE(files.remove_all(root + "/m/model.safetensors").ok());
  write_weights(files, root + "/m/real.safetensors", {"a"});
  ASSERT_TRUE(files.rename(root + "/m/real.safetensors", root + "/m/data").ok());
  ASSERT_EQ(::symlink("data", (root + "/m/model.safetensors").c_str()), 0);
  EXPECT_TRUE(CheckpointFolder::open(files, root + "/m").ok());
  (void)files.remove_all(root).ok();
}

TEST(ShardPlan, FillsShardsInOrder) {
  const auto tensor = [](const char* name, int64_t bytes) { return TensorSpec{name, DType::kU8, {bytes}}; };
  const ShardPlan plan =
      ShardPlan::by_size({tensor("a", 4), tensor("b", 4), tensor("c", 20), tensor("d", 0), tensor("e", 6)}, 10);
  ASSERT_EQ(plan.shards.size(), 3u);
  EXPECT_EQ(plan.shards[0].tensors.size(), 2u);
  EXPECT_EQ(plan.shards[1].file_name, "model-00002-of-00003.safetensors");
  EXPECT_EQ(plan.shards[1].tensors.size(), 1u);
  EXPECT_EQ(plan.shards[2].tensors.size(), 2u);
  EXPECT_EQ(plan.total_bytes(), 34);
  const auto index = ShardIndex::parse("index", plan.index_text());
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->total_size, 34);
  EXPECT_EQ(index->weight_map.size(), 5u);
  EXPECT_FALSE(ShardPlan::by_size({tensor("a", 4)}, 0).needs_index());
}

TEST(ShardPlan, KeepsTheSourcesFiles) {
  const ShardPlan plan = ShardPlan::by_source({{"a", DType::kU8, {1}}, {"b", DType::kU8, {1}}}, {2, 0},
                                              {"x.safetensors", "scales.safetensors", "y.safetensors"});
  ASSERT_EQ(plan.shards.size(), 2u);
  EXPECT_EQ(plan.shards[0].file_name, "x.safetensors");
  EXPECT_EQ(plan.shards[0].tensors[0].name, "b");
  EXPECT_TRUE(plan.needs_index());
}

}  // namespace
}  // namespace invar
