// The five examples that every language runs as tests, on invar.hpp; inputs and outputs are bindings/testdata's.
#include <gtest/gtest.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "invar/invar.hpp"

namespace invar_test {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

json read_json(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file);
}

std::string sha256(const std::vector<uint16_t>& values) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(values.data()), values.size() * sizeof(uint16_t), digest);
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

class CppExamples : public testing::Test {
 protected:
  CppExamples() {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  ~CppExamples() override { fs::remove_all(folder); }

  static invar::Runtime make_runtime() {
    invar::RuntimeOptions options;
    options.threads = 2;
    return invar::Runtime(options);
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  // Links that leave the folder, as runfiles are, would be refused.
  std::string input_of(const json& example) const {
    const fs::path copy = folder / "input";
    if (!fs::exists(copy)) fs::copy(fs::path("tests/cases") / example.at("case").get<std::string>() / "input", copy);
    return copy.string();
  }
  static json digests_of(const json& example) {
    return read_json(fs::path("tests/cases") / example.at("case").get<std::string>() / "case.json")
        .at("expected_digests");
  }
  std::string message(const char* type, const json& fields) const { return runtime.from_json(type, fields.dump()); }
  json report(const char* type, const std::string& bytes) const { return json::parse(runtime.to_json(type, bytes)); }
  static void judge(const json& example, const std::vector<double>& losses) {
    const json& expected = example.at("losses");
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i].get<double>(), example.at("tolerance").get<double>()) << "step " << i + 1;
    }
  }

  const fs::path folder = fs::path(testing::TempDir()) / ("cpp-examples-" + std::to_string(getpid()));
  const json examples = read_json("bindings/testdata/examples.json");
  const invar::Runtime runtime = make_runtime();
};

TEST_F(CppExamples, ConvertWithReport) {
  const json& example = examples.at("convert");
  const json converted =
      report("ConvertReport",
             runtime.convert(
                 message("convert", {{"source", input_of(example)}, {"destination", path("bf16")}, {"verify", true}})));
  EXPECT_TRUE(converted.at("passed"));
  EXPECT_TRUE(converted.at("verification").at("passed"));
  EXPECT_EQ(converted.at("tensors_written"), example.at("tensors_written"));
  EXPECT_EQ(converted.at("scales_used"), example.at("scales_used"));
  json rules = json::object();
  for (const json& line : converted.at("rules")) rules[line.at("rule").get<std::string>()] = line.at("tensors");
  for (const auto& [rule, tensors] : example.at("rules").items())
    EXPECT_EQ(rules.value(rule, json(0)), tensors) << rule;

  const invar::Checkpoint written(runtime, message("open", {{"path", path("bf16")}}));
  const json digests = digests_of(example);
  for (const auto& [name, digest] : digests.items()) {
    const int64_t index = written.find(name);
    const invar_checkpoint_tensor tensor = written.describe(index);
    std::vector<uint16_t> values(static_cast<size_t>(tensor.elements));
    written.read_rows(index, 0, tensor.rows, INVAR_DTYPE_BF16, values);
    EXPECT_EQ(sha256(values), digest.at("sha256")) << name;
  }
}

TEST_F(CppExamples, DecodeOneTensorIntoOwnMemory) {
  const json& example = examples.at("decode");
  const std::string name = example.at("tensor");
  const auto rows = example.at("rows").get<int64_t>(), cols = example.at("cols").get<int64_t>();
  const invar::Checkpoint checkpoint(runtime, message("open", {{"path", input_of(example)}}));
  const int64_t index = checkpoint.find(name);
  const invar_checkpoint_tensor tensor = checkpoint.describe(index);
  EXPECT_EQ(tensor.rule, example.at("rule"));
  EXPECT_TRUE(tensor.quantized);
  ASSERT_EQ(tensor.rank, 2);
  ASSERT_EQ(tensor.shape[0], rows);
  ASSERT_EQ(tensor.shape[1], cols);

  std::vector<uint16_t> own(static_cast<size_t>(rows * cols));
  checkpoint.read_rows(index, 0, rows, INVAR_DTYPE_BF16, own);
  const std::string expected = digests_of(example).at(name).at("sha256");
  EXPECT_EQ(sha256(own), expected);

  std::vector<uint16_t> by_rows;
  std::vector<uint16_t> row(static_cast<size_t>(cols));
  for (int64_t i = 0; i < rows; ++i) {
    checkpoint.read_rows(index, i, 1, INVAR_DTYPE_BF16, row);
    by_rows.insert(by_rows.end(), row.begin(), row.end());
  }
  EXPECT_EQ(sha256(by_rows), expected);
}

TEST_F(CppExamples, FineTuneFromTextExportAndGenerateWithStreaming) {
  std::ofstream text(path("text.txt"));
  for (int i = 0; i < examples.at("text").at("lines").get<int>(); ++i) {
    char line[200];
    std::snprintf(line, sizeof(line), examples.at("text").at("line").get<std::string>().c_str(), i, i, i + 1);
    text << line;
  }
  text.close();
  json config = examples.at("fine_tune").at("config");
  config["data"]["paths"] = {path("text.txt")};
  config["output"] = path("run");
  std::vector<double> losses;
  invar::Session session(runtime, message("train", config));
  session.run([&](const invar_progress& event) {
    if (event.kind == INVAR_PROGRESS_STEP) losses.push_back(event.step->loss);
    return 0;
  });
  judge(examples.at("fine_tune"), losses);
  session.export_to(message("export", {{"destination", path("serving")}}));

  invar::Model model(runtime, message("load", {{"path", path("serving")}}));
  const json& asked = examples.at("generate");
  std::string streamed;
  const json generated = report(
      "GenerateReport",
      model.generate(message("generate", {{"prompt", asked.at("prompt")}, {"max_tokens", asked.at("max_tokens")}}),
                     [&](const invar_token& token) {
                       streamed.append(token.text, token.text_size);
                       return 0;
                     }));
  EXPECT_EQ(generated.at("text"), streamed);
  EXPECT_FALSE(generated.at("ids").empty());
}

TEST_F(CppExamples, HostDrivenLoopWithOwnDataAndOwnLearningRate) {
  const json& example = examples.at("host_driven");
  const auto sequences = example.at("sequences").get<int64_t>(), length = example.at("sequence_length").get<int64_t>();
  const auto lr = example.at("lr").get<double>();
  std::vector<int32_t> ids(static_cast<size_t>(sequences * length));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = 97 + static_cast<int32_t>(i % 7);
  invar::Session session(runtime, message("train", example.at("config")));
  std::vector<double> losses;
  for (int step = 0; step < example.at("steps").get<int>(); ++step) {
    const auto micro_batches = example.at("micro_batches").get<int64_t>();
    session.begin(micro_batches);
    for (int64_t i = 0; i < micro_batches; ++i) session.forward_backward(sequences, ids);
    const invar_step_metrics metrics = session.step(lr);
    EXPECT_EQ(metrics.lr, lr);
    losses.push_back(metrics.loss);
  }
  judge(example, losses);
}

}  // namespace
}  // namespace invar_test
