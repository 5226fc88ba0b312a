// Every case of tests/cases, converted to BF16 (adapters: merged into their base): what must be refused is refused with
// the right reason and names and leaves nothing behind; what must convert gives the expected bits, keeps and drops the
// right tensors, configs and files, and passes verify().
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/checkpoint/convert.h"
#include "core/checkpoint/inspect.h"
#include "core/checkpoint/merge.h"
#include "core/checkpoint/tile.h"
#include "core/checkpoint/values.h"
#include "core/checkpoint/verify.h"
#include "core/container/checkpoint_folder.h"
#include "core/container/safetensors.h"
#include "tests/cases_driver/sha256.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kCases[] = "tests/cases";

// The cases' neutral names and ours.
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
    {"SizeOverflow", {"safetensors.size_overflow", "gguf.size_overflow"}},
    {"BadMagic", {"gguf.bad_magic"}},
    {"BadAlignment", {"gguf.bad_alignment"}},
    {"CountTooLarge", {"gguf.count_too_large"}},
    {"StringTooLong", {"gguf.string_too_long"}},
    {"TensorOutOfRange", {"gguf.tensor_out_of_range"}},
    {"UnknownType", {"gguf.unknown_type"}},
    {"BadMetadata", {"safetensors.bad_metadata"}},
    {"MissingShard", {"index.missing_shard"}},
    {"MissingTensor", {"index.missing_tensor"}},
    {"UnsafePath", {"index.unsafe_path"}},
    {"BadIndex", {"index.bad"}},
    {"UnsafePickle", {"pickle.unsafe_global"}},
    {"MissingScale", {"checkpoint.missing_scale"}},
    {"UnusedScale", {"checkpoint.unused_scale"}},
    {"ScaleShape", {"checkpoint.scale_shape"}},
    {"AmbiguousScale", {"checkpoint.ambiguous_scale"}},
    {"ScaleNotFinite", {"checkpoint.scale_not_finite"}},
    {"ScaleNegative", {"checkpoint.scale_negative"}},
    {"ScaleZero", {"checkpoint.scale_zero"}},
    {"NanCode", {"checkpoint.nan_code"}},
    {"SuspiciousScale", {"checkpoint.suspicious_scale"}},
};

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  const auto entries = posix_files().list(kCases);
  if (!entries.ok()) return names;
  for (const DirEntry& entry : *entries) {
    if (posix_files().exists(join_path(join_path(kCases, entry.name), "case.json"))) names.push_back(entry.name);
  }
  return names;
}

bool names(const std::string& text, const std::string& wanted) { return text.find(wanted) != std::string::npos; }

DType dtype_of_torch(const std::string& name) {
  static const std::map<std::string, DType> known = {
      {"bfloat16", DType::kBF16}, {"float16", DType::kF16}, {"float32", DType::kF32}};
  const auto it = known.find(name);
  return it == known.end() ? DType::kUnspecified : it->second;
}

class Cases : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    name_ = GetParam();
    const std::string folder = join_path(kCases, name_);
    const auto text = read_text(posix_files(), join_path(folder, "case.json"), 1 << 26);
    ASSERT_TRUE(text.ok()) << text.status().message();
    case_ = Json::parse(*text);
    // Runfiles are links, which a folder may not hold: work on real copies.
    scratch_ = fs::path(std::getenv("TEST_TMPDIR")) / name_;
    fs::remove_all(scratch_);
    fs::create_directories(scratch_ / "input");
    const fs::path input = fs::path(folder) / case_.value("input", "input");
    for (const auto& entry : fs::recursive_directory_iterator(input)) {
      const fs::path to = scratch_ / "input" / entry.path().lexically_relative(input);
      if (fs::is_directory(entry.path())) {
        fs::create_directories(to);
      } else {
        fs::create_directories(to.parent_path());
        fs::copy_file(fs::canonical(entry.path()), to);
      }
    }
    folder_ = folder;
    config_.set_source((scratch_ / "input").string());
    config_.set_destination((scratch_ / "result").string());
    if (case_.contains("compare") && case_["compare"].contains("nan")) config_.set_nan_policy(v1::NAN_POLICY_KEEP);
    if (case_.contains("manifest")) {  // every dtype, FP8 without scales: read as values, in FP32
      config_.set_target(v1::TARGET_FORMAT_FP32);
      (*config_.mutable_assume())["missing_scale"] = "one";
    }
    by_value_ = case_.contains("compare") && case_["compare"].value("mode", "") == "f32-rel";
    if (by_value_) config_.set_target(v1::TARGET_FORMAT_FP32);
  }

  std::string why(const std::string& text) const { return name_ + ": " + text; }

  void expect_names(const std::string& text) const {
    for (const std::string& must : case_.value("must_name", std::vector<std::string>{})) {
      EXPECT_TRUE(names(text, must)) << "does not name " << must << ": " << text;
    }
  }

  void expect_nothing_left() const {
    EXPECT_FALSE(fs::exists(scratch_ / "result"));
    EXPECT_FALSE(fs::exists(scratch_ / "result.partial"));
  }

  void check_refused(const Result<v1::ConvertReport>& report) const {
    const std::string error_class = case_.value("error_class", "");
    ASSERT_FALSE(report.ok()) << "must be refused as " << error_class;
    const auto reasons = kReasons.find(error_class);
    ASSERT_NE(reasons, kReasons.end()) << error_class << " has no reason of ours";
    EXPECT_NE(std::find(reasons->second.begin(), reasons->second.end(), report.status().reason()),
              reasons->second.end())
        << error_class << " came as " << report.status().reason() << ": " << report.status().message();
    expect_names(report.status().message());
    expect_nothing_left();
    if (!case_.contains("marker_must_not_exist")) return;
    const std::string marker = case_["marker_must_not_exist"].get<std::string>();
    for (const fs::path& temporary : {fs::path("/tmp"), fs::temp_directory_path()}) {
      EXPECT_FALSE(fs::exists(temporary / marker)) << "the input was run";
    }
  }

  void check_reported(const v1::ConvertReport& report) const {
    std::string warnings;
    for (const std::string& warning : report.warnings()) warnings += warning + "\n";
    EXPECT_FALSE(warnings.empty()) << "nothing was reported";
    const auto reasons = kReasons.find(case_.value("error_class", ""));
    if (reasons != kReasons.end()) {
      EXPECT_TRUE(names(warnings, reasons->second[0])) << warnings;
    }
    expect_names(warnings);
  }

  void check_values(const CheckpointFolder& result) const {
    if (case_.contains("expected") && !case_["expected"].is_null()) {
      const auto expected =
          SafetensorsFile::open(posix_files(), join_path(folder_, case_["expected"].get<std::string>()));
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      for (const TensorInfo& tensor : expected->header().tensors()) {
        if (tensor.name.starts_with("reference_logits")) continue;  // judged where models run
        const TensorInfo* got = result.find(tensor.name);
        ASSERT_NE(got, nullptr) << tensor.name << " is missing in the result";
        if (case_.contains("manifest") && got->dtype != DType::kF32) continue;  // judged by its digest
        if (by_value_ || case_.contains("digests")) {
          expect_close(result, tensor, *got, *expected->read_all(tensor));
          continue;
        }
        EXPECT_EQ(got->dtype, tensor.dtype) << tensor.name;
        EXPECT_EQ(got->shape, tensor.shape) << tensor.name;
        const auto want_bytes = expected->read_all(tensor);
        const auto got_bytes = result.read_all(*got);
        ASSERT_TRUE(want_bytes.ok() && got_bytes.ok());
        expect_equal(tensor, *want_bytes, *got_bytes);
      }
    }
    if (!case_.contains("expected_digests")) return;
    for (const auto& [name, digest] : case_["expected_digests"].items()) {
      const TensorInfo* got = result.find(name);
      ASSERT_NE(got, nullptr) << name << " is missing in the result";
      EXPECT_EQ(got->dtype, dtype_of_torch(digest["dtype"])) << name;
      EXPECT_EQ(got->shape, digest["shape"].get<std::vector<int64_t>>()) << name;
      const auto bytes = result.read_all(*got);
      ASSERT_TRUE(bytes.ok());
      EXPECT_EQ(sha256_hex(*bytes), digest["sha256"].get<std::string>()) << name;
    }
  }

  // Adapters: changed tensors are near the expected ones, the others are the base's bytes.
  void check_merged(const WorkContext& context) {
    v1::MergeConfig config;
    config.set_base((scratch_ / "input" / "base").string());
    config.set_adapter((scratch_ / "input" / "adapter").string());
    config.set_destination(config_.destination());
    const auto report = merge(config, context);
    ASSERT_TRUE(report.ok()) << report.status().message();
    if (case_.contains("scaling")) {
      for (const v1::MergedTensor& tensor : report->tensors()) {
        if (tensor.has_scaling()) EXPECT_NEAR(tensor.scaling(), case_["scaling"].get<double>(), 1e-12) << tensor.name();
      }
    }
    const auto base = CheckpointFolder::open(posix_files(), config.base());
    const auto result = CheckpointFolder::open(posix_files(), config.destination());
    const auto expected =
        SafetensorsFile::open(posix_files(), join_path(folder_, case_["expected"].get<std::string>()));
    ASSERT_TRUE(base.ok() && result.ok() && expected.ok());
    by_value_ = true;
    check_values(*result);
    EXPECT_EQ(result->tensors().size(), base->tensors().size());
    for (const TensorInfo& tensor : base->tensors()) {
      const TensorInfo* got = result->find(tensor.name);
      ASSERT_NE(got, nullptr) << tensor.name;
      EXPECT_EQ(got->dtype, tensor.dtype) << tensor.name;
      const bool changed = expected->header().find(tensor.name) != nullptr;
      if (!changed) EXPECT_EQ(*base->read_all(tensor), *result->read_all(*got)) << tensor.name;
    }
  }

  // The first values of a tensor, as numbers: dtypes may differ where no tool decodes (F64, integers).
  void expect_close(const CheckpointFolder& result, const TensorInfo& want, const TensorInfo& got,
                    const std::vector<std::byte>& want_bytes) const {
    const int64_t n = element_count(want.shape);
    if (by_value_) {
      EXPECT_EQ(got.shape, want.shape) << want.name;
    }
    ASSERT_LE(n, element_count(got.shape)) << want.name;
    TensorPlan plan;
    plan.source = &got;
    plan.shape = got.shape;
    std::vector<double> values(static_cast<size_t>(n));
    ASSERT_TRUE(ValueReader(result).read(plan, 0, std::span(values)).ok()) << want.name;
    const double tolerance = by_value_ ? case_["compare"]["max"].get<double>() : 0x1p-8;  // or rounded to BF16
    // "rel" is a share of the tensor's largest value: sums whose terms cancel have no closer FP32 result.
    double largest = 0;
    if (case_.contains("compare") && case_["compare"].value("mode", "") == "rel") {
      for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(number(want.dtype, want_bytes, i)));
    }
    for (int64_t i = 0; i < n; ++i) {
      const double expected = number(want.dtype, want_bytes, i), value = values[static_cast<size_t>(i)];
      ASSERT_NEAR(value, expected, tolerance * std::max(largest, std::fabs(expected))) << want.name << " element " << i;
    }
  }

  static double number(DType dtype, const std::vector<std::byte>& bytes, int64_t i) {
    if (dtype == DType::kI8) return static_cast<int8_t>(bytes[static_cast<size_t>(i)]);
    if (dtype == DType::kI32) {
      int32_t value;
      std::memcpy(&value, bytes.data() + i * 4, 4);
      return value;
    }
    if (dtype == DType::kF64) {
      double value;
      std::memcpy(&value, bytes.data() + i * 8, 8);
      return value;
    }
    return result_value(dtype, bytes.data(), i);
  }

  // Digests in a file of their own: every tensor of the result, as F32 or as BF16.
  void check_digest_file(const CheckpointFolder& result) const {
    if (!case_.contains("digests") || !case_["digests"].is_string()) return;
    const auto text = read_text(posix_files(), join_path(folder_, case_["digests"].get<std::string>()), 1 << 26);
    ASSERT_TRUE(text.ok()) << text.status().message();
    const Json digests = Json::parse(*text)["tensors"];
    EXPECT_EQ(digests.size(), result.tensors().size());
    for (const auto& [name, entry] : digests.items()) {
      const TensorInfo* got = result.find(name);
      ASSERT_NE(got, nullptr) << name << " is missing in the result";
      std::vector<int64_t> shape = entry["shape_ggml"];
      std::reverse(shape.begin(), shape.end());
      EXPECT_EQ(got->shape, shape) << name;
      const bool plain = entry["type"] == "F32";
      EXPECT_EQ(got->dtype, plain ? DType::kF32 : DType::kBF16) << name;
      EXPECT_EQ(sha256_hex(*result.read_all(*got)), entry[plain ? "sha256_f32" : "sha256_bf16"].get<std::string>())
          << name;
    }
  }

  // Bit for bit; NaN matches NaN.
  static void expect_equal(const TensorInfo& tensor, const std::vector<std::byte>& want,
                           const std::vector<std::byte>& got) {
    ASSERT_EQ(want.size(), got.size()) << tensor.name;
    if (want == got) return;
    const int64_t width = bits_of(tensor.dtype) / 8, n = static_cast<int64_t>(want.size()) / width;
    for (int64_t i = 0; i < n; ++i) {
      if (std::memcmp(want.data() + i * width, got.data() + i * width, static_cast<size_t>(width)) == 0) continue;
      const float x = result_value(tensor.dtype, want.data(), i), y = result_value(tensor.dtype, got.data(), i);
      if (std::isnan(x) && std::isnan(y)) continue;
      ADD_FAILURE() << tensor.name << " element " << i << " is " << y << ", expected " << x;
      return;
    }
  }

  void check_passed_through(const CheckpointFolder& source, const CheckpointFolder& result) const {
    for (const std::string& name : case_.value("passthrough", std::vector<std::string>{})) {
      const TensorInfo* before = source.find(name);
      const TensorInfo* after = result.find(name);
      ASSERT_NE(before, nullptr) << name;
      ASSERT_NE(after, nullptr) << name << " must pass through";
      EXPECT_EQ(after->dtype, before->dtype) << name;
      EXPECT_EQ(after->shape, before->shape) << name;
      EXPECT_EQ(*source.read_all(*before), *result.read_all(*after)) << name;
    }
    for (const std::string& name : case_.value("dropped", std::vector<std::string>{})) {
      EXPECT_EQ(result.find(name), nullptr) << name << " must not be in the result";
    }
    if (!case_.contains("rename")) return;
    for (const auto& [from, to] : case_["rename"].items()) {
      EXPECT_NE(result.find(to.get<std::string>()), nullptr) << from << " must become " << to;
    }
  }

  void check_side_files() const {
    for (const std::string& entry : case_.value("config_must_lose", std::vector<std::string>{})) {
      const auto colon = entry.find(": ");
      const std::string file = colon == std::string::npos ? "config.json" : entry.substr(0, colon);
      const std::string key = colon == std::string::npos ? entry : entry.substr(colon + 2);
      const auto text = read_text(posix_files(), (scratch_ / "result" / file).string(), 1 << 26);
      ASSERT_TRUE(text.ok()) << text.status().message();
      const Json json = Json::parse(*text);
      EXPECT_FALSE(json.contains(key)) << file << " still has " << key;
    }
    for (const std::string& file : case_.value("files_must_go", std::vector<std::string>{})) {
      EXPECT_FALSE(fs::exists(scratch_ / "result" / file)) << file;
    }
  }

  void check_manifest(const CheckpointFolder& result) const {
    if (!case_.contains("manifest")) return;
    for (const auto& [name, entry] : case_["manifest"].items()) {
      const TensorInfo* got = result.find(name);
      ASSERT_NE(got, nullptr) << name;
      const DType before = dtype_from_name(entry["dtype"].get<std::string>());
      if (got->dtype != before) {
        EXPECT_EQ(got->dtype, DType::kF32) << name;
        continue;
      }
      const auto bytes = result.read_all(*got);
      ASSERT_TRUE(bytes.ok());
      EXPECT_EQ(sha256_hex(*bytes), entry["sha256"].get<std::string>()) << name;
    }
  }

  std::string name_, folder_;
  Json case_;
  fs::path scratch_;
  v1::ConvertConfig config_;
  bool by_value_ = false;  // compared as numbers with a tolerance
};

TEST_P(Cases, ConvertToWhatTheCaseExpects) {
  ThreadPool pool(2);
  const WorkContext context{posix_files(), pool};
  if (fs::exists(scratch_ / "input" / "adapter")) {
    check_merged(context);
    return;
  }
  const auto report = convert(config_, context);
  const std::string verdict = case_.value("verdict", "accept");
  if (verdict == "reject") {
    check_refused(report);
    return;
  }
  ASSERT_TRUE(report.ok()) << report.status().reason() << ": " << report.status().message();
  if (verdict == "accept-report") check_reported(*report);
  const auto source = CheckpointFolder::open(posix_files(), config_.source());
  const auto result = CheckpointFolder::open(posix_files(), config_.destination());
  ASSERT_TRUE(source.ok() && result.ok());
  check_values(*result);
  check_digest_file(*result);
  check_passed_through(*source, *result);
  check_side_files();
  check_manifest(*result);
  EXPECT_EQ(report->reencode_mismatched(), 0) << "results that do not encode back";

  v1::VerifyConfig verify_config;
  verify_config.set_source(config_.source());
  verify_config.set_destination(config_.destination());
  if (config_.has_nan_policy()) verify_config.set_nan_policy(config_.nan_policy());
  *verify_config.mutable_assume() = config_.assume();
  const auto proof = verify(verify_config, context);
  ASSERT_TRUE(proof.ok()) << proof.status().message();
  EXPECT_TRUE(proof->passed()) << proof->problems(0).kind() << ": " << proof->problems(0).detail();
  EXPECT_EQ(proof->tensors(), static_cast<int64_t>(result->tensors().size()));

  v1::InspectConfig inspect_config;
  inspect_config.set_path(config_.source());
  *inspect_config.mutable_assume() = config_.assume();
  const auto seen = inspect(inspect_config, posix_files());
  ASSERT_TRUE(seen.ok()) << seen.status().message();
  EXPECT_EQ(seen->layout(), report->layout());
  EXPECT_EQ(seen->tensors(), static_cast<int64_t>(source->tensors().size()));
}

INSTANTIATE_TEST_SUITE_P(All, Cases, testing::ValuesIn(case_names()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
                           return name;
                         });

TEST(CaseLists, HoldEveryCase) { EXPECT_GE(case_names().size(), 90u); }

}  // namespace
}  // namespace invar
