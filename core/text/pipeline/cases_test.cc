// Every tokenizer of tests/cases/tokenizers gives the ids and texts that the tokenizers library gave.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/text/tokenizer.h"

namespace invar {
namespace {

constexpr const char* kFolder = "tests/cases/tokenizers";

class TokenizerCases : public testing::TestWithParam<const char*> {};

nlohmann::json read_json(const std::string& path) {
  auto text = read_text(posix_files(), path, int64_t{64} << 20);
  return text.ok() ? nlohmann::json::parse(text.value()) : nlohmann::json();
}

TEST_P(TokenizerCases, EncodesAndDecodesAsTheTokenizersLibrary) {
  const std::string folder = join_path(kFolder, GetParam());
  const auto loaded = load_tokenizer(posix_files(), folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const Tokenizer& tokenizer = *loaded.value();
  const auto cases = read_json(join_path(folder, "cases.json")).at("cases");
  ASSERT_GE(cases.size(), 100u);
  for (const auto& one : cases) {
    const auto text = one.at("text").get<std::string>();
    const auto ids = one.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text, {.add_special = true, .parse_special = true}), ids) << one.at("text");
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = true}), one.at("ids_no_special").get<std::vector<int32_t>>())
        << one.at("text");
    for (const bool skip : {true, false}) {
      const auto decoded = tokenizer.decode(ids, skip);
      ASSERT_TRUE(decoded.ok()) << decoded.status().message();
      EXPECT_EQ(decoded.value(), one.at(skip ? "decoded" : "decoded_keep_special").get<std::string>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerCases,
                         testing::Values("small-gpt2", "small-llama3", "small-qwen", "small-spbpe", "small-unigram"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace invar
