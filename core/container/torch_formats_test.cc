// What PyTorch and DeepSpeed wrote, compared with what their own readers make of it (testdata/make_torch.py and
// make_deepspeed.py), and what must be refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/base/memory_files.h"
#include "core/container/checkpoint_folder.h"
#include "core/container/safetensors.h"

namespace invar {
namespace {

constexpr char kData[] = "core/container/testdata/";

Result<CheckpointFolder> open_data(const std::string& name) {
  CheckpointFolder::Options options;
  options.follow_links = true;  // runfiles are links
  return CheckpointFolder::open(posix_files(), kData + name, options);
}

// In runs of a size that fits no row, so that runs begin and end anywhere.
std::vector<std::byte> read_in_runs(const CheckpointFolder& folder, const TensorInfo& tensor) {
  constexpr int64_t kRun = 37;
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.byte_size()));
  for (int64_t at = 0; at < tensor.byte_size(); at += kRun) {
    const auto n = static_cast<size_t>(std::min(kRun, tensor.byte_size() - at));
    EXPECT_TRUE(folder.read(tensor, at, std::span(bytes).subspan(static_cast<size_t>(at), n)).ok());
  }
  return bytes;
}

struct Fixture {
  const char* input;
  const char* expected;
  const char* format;
};

class TorchFiles : public testing::TestWithParam<Fixture> {};

TEST_P(TorchFiles, HoldWhatTheirOwnReaderReads) {
  const Fixture& fixture = GetParam();
  const auto folder = open_data(fixture.input);
  ASSERT_TRUE(folder.ok()) << folder.status().reason() << ": " << folder.status().message();
  EXPECT_EQ(folder->format(), fixture.format);
  const auto expected = SafetensorsFile::open(posix_files(), kData + std::string(fixture.expected) + ".safetensors");
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  EXPECT_EQ(folder->tensors().size(), expected->tensors().size());
  for (const TensorInfo& want : expected->tensors()) {
    const TensorInfo* got = folder->find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    const auto want_bytes = expected->read_all(want);
    const auto got_bytes = folder->read_all(*got);
    ASSERT_TRUE(got_bytes.ok()) << got_bytes.status().message();
    EXPECT_TRUE(*got_bytes == *want_bytes) << want.name;
    EXPECT_TRUE(read_in_runs(*folder, *got) == *want_bytes) << want.name;
    if (got->dtype == DType::kE2M1) continue;  // torch counts pairs, and the expected file bytes
    EXPECT_EQ(got->dtype, want.dtype) << want.name;
    EXPECT_EQ(got->shape, want.shape) << want.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TorchFiles,
                         testing::Values(Fixture{"dtypes.pt", "dtypes", "torch"}, Fixture{"views.pt", "views", "torch"},
                                         Fixture{"legacy.pt", "legacy", "torch"},
                                         Fixture{"trainer.ckpt", "trainer", "torch"}, Fixture{"grid", "grid", "dcp"},
                                         Fixture{"plain_dcp", "plain_dcp", "dcp"},
                                         Fixture{"zero1", "zero1", "deepspeed"}, Fixture{"zero2", "zero2", "deepspeed"},
                                         Fixture{"zero3", "zero3", "deepspeed"},
                                         Fixture{"universal", "universal", "universal"}),
                         [](const testing::TestParamInfo<Fixture>& info) { return std::string(info.param.expected); });

TEST(TorchFormats, PairsOfFp4CountTwice) {
  const auto folder = open_data("dtypes.pt");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  const TensorInfo* pairs = folder->find("float4_e2m1fn_x2");
  ASSERT_NE(pairs, nullptr);
  EXPECT_EQ(pairs->dtype, DType::kE2M1);
  EXPECT_EQ(pairs->shape, (std::vector<int64_t>{2, 12}));
}

TEST(TorchFormats, StatesBesideWeightsAreLeftOutAndNamed) {
  const auto folder = open_data("trainer.ckpt");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  ASSERT_EQ(folder->findings().size(), 1u);
  EXPECT_EQ(folder->findings()[0].reason, "torch.other_states");
  EXPECT_NE(folder->findings()[0].message.find("optimizer"), std::string::npos);
}

// Copies of the fixtures that can be damaged.
class Damaged : public testing::Test {
 protected:
  void copy(const std::string& from, const std::string& to) {
    const auto entries = posix_files().list(kData + from);
    ASSERT_TRUE(entries.ok()) << entries.status().message();
    for (const DirEntry& entry : *entries) {
      const std::string path = kData + join_path(from, entry.name);
      if (posix_files().is_directory(path)) {
        copy(join_path(from, entry.name), join_path(to, entry.name));
      } else {
        files.put(join_path(to, entry.name), *read_text(posix_files(), path, 1 << 24));
      }
    }
  }
  std::string bytes(const std::string& path) { return *read_text(files, path, 1 << 24); }
  void replace(const std::string& path, const std::string& from, const std::string& to) {
    std::string text = bytes(path);
    ASSERT_EQ(from.size(), to.size());
    ASSERT_NE(text.find(from), std::string::npos);
    text.replace(text.find(from), from.size(), to);
    files.put(path, text);
  }
  Status open(const std::string& path) { return CheckpointFolder::open(files, path).status(); }
  MemoryFiles files;
};

TEST_F(Damaged, EveryCutOfATorchFileIsRefused) {
  for (const char* name : {"trainer.ckpt", "legacy.pt"}) {
    const std::string whole = *read_text(posix_files(), std::string(kData) + name, 1 << 24);
    const size_t step = whole.size() > 10000 ? 97 : 7;
    for (size_t n = 0; n < whole.size(); n += step) {
      files.put("/m/cut.pt", whole.substr(0, n));
      const Status status = open("/m/cut.pt");
      ASSERT_FALSE(status.ok()) << name << " cut at " << n;
      ASSERT_NE(status.message().find("cut.pt"), std::string::npos) << status.message();
    }
  }
}

TEST_F(Damaged, ShardedTorchFilesAreCheckedAgainstTheIndex) {
  files.put("/m/pytorch_model-00001-of-00002.bin", *read_text(posix_files(), cat(kData, "trainer.ckpt"), 1 << 24));
  files.put("/m/pytorch_model-00002-of-00002.bin", *read_text(posix_files(), cat(kData, "dtypes.pt"), 1 << 24));
  files.put("/m/training_args.bin", "anything");
  files.put("/m/pytorch_model.bin.index.json",
            R"({"weight_map":{"a.w":"pytorch_model-00001-of-00002.bin","bool":"pytorch_model-00002-of-00002.bin"}})");
  const auto folder = CheckpointFolder::open(files, "/m");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(folder->files().size(), 2u);
  EXPECT_EQ(folder->file_name(*folder->find("bool")), "pytorch_model-00002-of-00002.bin");
  EXPECT_TRUE(folder->side_files().empty());
  files.put("/m/pytorch_model.bin.index.json", R"({"weight_map":{"zz":"pytorch_model-00001-of-00002.bin"}})");
  EXPECT_EQ(open("/m").reason(), "index.missing_tensor");
  files.put("/m/pytorch_model.bin.index.json", R"({"weight_map":{"a.w":"../x.bin"}})");
  EXPECT_EQ(open("/m").reason(), "index.unsafe_path");
}

TEST_F(Damaged, DcpFoldersNameWhatIsWrong) {
  copy("grid", "/d");
  ASSERT_TRUE(open("/d").ok()) << open("/d").message();
  files.put("/parent/config.json", "{}");
  copy("grid", "/parent/dcp");
  const auto nested = CheckpointFolder::open(files, "/parent");
  ASSERT_TRUE(nested.ok()) << nested.status().message();
  EXPECT_EQ(nested->side_files(), std::vector<std::string>{"config.json"});
  EXPECT_EQ(nested->file_name(nested->tensors()[0]), "dcp");
  copy("grid", "/parent/other");
  EXPECT_EQ(open("/parent").reason(), "folder.several_checkpoints");

  ASSERT_TRUE(files.remove_all("/d/__1_0.distcp").ok());
  EXPECT_EQ(open("/d").reason(), "dcp.missing_chunk");
  copy("grid", "/d");
  files.put("/d/__0_0.distcp", bytes("/d/__0_0.distcp").substr(0, 2000));
  EXPECT_EQ(open("/d").reason(), "dcp.missing_chunk");
  copy("grid", "/d");
  replace("/d/.metadata", "__0_0.distcp", "../_0.distcp");
  EXPECT_EQ(open("/d").reason(), "dcp.unsafe_path");
  EXPECT_NE(open("/d").message().find("../_0.distcp"), std::string::npos);
  copy("grid", "/d");
  replace("/d/.metadata", "torch.distributed.checkpoint.filesystem", "torch.distributed.checkpoint.filesystEm");
  EXPECT_EQ(open("/d").reason(), "pickle.unsafe_global");
}

TEST_F(Damaged, ZeroFoldersNameWhatIsMissing) {
  copy("zero2", "/z");
  ASSERT_TRUE(open("/z").ok()) << open("/z").message();
  const std::string tag = "/z/" + bytes("/z/latest");
  ASSERT_TRUE(files.remove_all(tag + "/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt").ok());
  EXPECT_EQ(open("/z").reason(), "deepspeed.missing_rank");
  ASSERT_TRUE(files.remove_all(tag + "/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").ok());
  EXPECT_EQ(open("/z").reason(), "deepspeed.missing_rank");
  copy("zero2", "/z");
  files.put(tag + "/mp_rank_01_model_states.pt", bytes(tag + "/mp_rank_00_model_states.pt"));
  EXPECT_EQ(open("/z").reason(), "deepspeed.model_parallel");
  copy("zero2", "/y");
  files.put("/y/latest", "../z");
  EXPECT_EQ(open("/y").reason(), "index.unsafe_path");
}

TEST(TorchFolders, LinksInsideFoldersStayInside) {
  FileSystem& files = posix_files();
  const std::string root = join_path(testing::TempDir(), "dcp_links");
  ASSERT_TRUE(files.remove_all(root).ok());
  ASSERT_TRUE(files.make_directories(root + "/d").ok());
  for (const char* name : {".metadata", "__0_0.distcp", "__1_0.distcp"}) {
    const std::string to = root + (name[0] == '.' ? "/d/" : "/") + name;
    ASSERT_TRUE(write_text_atomically(files, to, *read_text(files, cat(kData, "grid/", name), 1 << 24)).ok());
    if (name[0] == '.') continue;
    ASSERT_EQ(::symlink(to.c_str(), cat(root, "/d/", name).c_str()), 0);
  }
  for (const std::string& path : {root + "/d", root}) {
    const Status status = CheckpointFolder::open(files, path).status();
    // Below `root` the links stay inside; named as `root/d` they leave.
    EXPECT_EQ(status.reason(), path == root ? "" : "index.unsafe_path") << status.message();
  }
  ASSERT_TRUE(files.remove_all(root).ok());
}

}  // namespace
}  // namespace invar
