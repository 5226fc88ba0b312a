// Runs every case of tests/cases as far as a container can judge it: what must be refused is refused
// with the right reason and names, everything else opens and its tensors can be read.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "core/container/checkpoint_folder.h"

namespace invar {
namespace {

// The cases' neutral error names and what we call them.
const std::map<std::string, std::vector<std::string>> kReasons = {
    {"TruncatedFile", {"safetensors.truncated"}},
    {"HeaderTooLarge", {"safetensors.header_too_large"}},
    {"HeaderTooLong", {"safetensors.header_too_long"}},
    {"BadHeaderText", {"safetensors.bad_header"}},
    {"DuplicateTensor", {"safetensors.duplicate_tensor", "folder.duplicate_tensor"}},
    {"SizeMismatch", {"safetensors.size_mismatch"}},
    {"BadOffsets", {"safetensors.bad_offsets"}},
    {"HoleInData", {"safetensors.hole"}},
    {"OverlappingTensors", {"safetensors.overlap"}},
    {"TrailingData", {"safetensors.trailing_data"}},
    {"UnknownDtype", {"safetensors.unknown_dtype"}},
    {"BadShape", {"safetensors.bad_shape"}},
    {"SizeOverflow", {"safetensors.size_overflow"}},
    {"BadMetadata", {"safetensors.bad_metadata"}},
    {"MissingShard", {"index.missing_shard"}},
    {"MissingTensor", {"index.missing_tensor"}},
    {"UnsafePath", {"index.unsafe_path"}},
    {"BadIndex", {"index.bad"}},
    {"UnsafePickle", {"pickle.unsafe_global"}},
};

nlohmann::json case_json(const std::string& folder) {
  const auto text = read_text(posix_files(), join_path(folder, "case.json"), 1 << 24);
  EXPECT_TRUE(text.ok()) << folder;
  return text.ok() ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
}

// Two checkpoints side by side, and formats of other readers.
bool belongs_elsewhere(const std::string& name) { return name.starts_with("peft-") || name.find("gguf") != name.npos; }

TEST(ContainerCases, AreAllJudged) {
  const auto entries = posix_files().list("tests/cases");
  ASSERT_TRUE(entries.ok());
  int rejected = 0, accepted = 0, other_formats = 0;
  for (const DirEntry& entry : *entries) {
    const std::string folder = join_path("tests/cases", entry.name);
    if (!posix_files().exists(join_path(folder, "case.json"))) continue;
    SCOPED_TRACE(entry.name);
    const nlohmann::json fields = case_json(folder);
    const std::string input = join_path(folder, fields.value("input", "input"));
    if (belongs_elsewhere(entry.name)) {
      ++other_formats;
      continue;
    }
    const std::string error_class = fields.value("error_class", "none");
    // Runfiles are links to the real files; that links are refused is tested on its own.
    CheckpointFolder::Options options;
    options.follow_links = true;
    const auto opened = CheckpointFolder::open(posix_files(), input, options);
    const auto reasons = kReasons.find(error_class);
    if (fields.value("verdict", "accept") == "reject" && reasons != kReasons.end()) {
      ASSERT_FALSE(opened.ok()) << "must be refused as " << error_class;
      EXPECT_NE(std::find(reasons->second.begin(), reasons->second.end(), opened.status().reason()),
                reasons->second.end())
          << error_class << " came as " << opened.status().reason() << ": " << opened.status().message();
      for (const std::string& must : fields.value("must_name", std::vector<std::string>{})) {
        EXPECT_NE(opened.status().message().find(must), std::string::npos) << must << ": " << opened.status().message();
      }
      ++rejected;
      continue;
    }
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    EXPECT_FALSE(opened->tensors().empty());
    for (const TensorInfo& tensor : opened->tensors()) {
      const auto bytes = opened->read_all(tensor);
      ASSERT_TRUE(bytes.ok()) << bytes.status().message();
      EXPECT_EQ(static_cast<int64_t>(bytes->size()), bytes_of(tensor.dtype, element_count(tensor.shape)));
    }
    ++accepted;
  }
  std::printf("rejected %d, accepted %d, other formats %d\n", rejected, accepted, other_formats);
  EXPECT_GE(rejected, 27);
  EXPECT_GE(accepted, 40);
}

}  // namespace
}  // namespace invar
