// SentencePiece models give the ids and texts that the sentencepiece library gave.
#include <gtest/gtest.h>

#include "core/text/template/value.h"
#include "core/text/tokenizer.h"

namespace invar {
namespace {

constexpr const char* kFolder = "tests/cases/tokenizers/sentencepiece";

std::vector<int32_t> ids_of(const chat::Value& list) {
  std::vector<int32_t> ids;
  for (const auto& id : list.items()) ids.push_back(static_cast<int32_t>(id.integer()));
  return ids;
}

TEST(SentencePiece, EncodesAndDecodesAsItsLibrary) {
  const auto text = read_text(posix_files(), join_path(kFolder, "cases.json"), 1 << 24);
  ASSERT_TRUE(text.ok());
  const auto table = chat::value_of_json(text.value());
  ASSERT_TRUE(table.ok());
  for (const auto& row : table.value().items()) {
    const std::string name = row.find("model").string();
    const auto loaded = load_tokenizer(posix_files(), join_path(kFolder, name));
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    ASSERT_GE(row.find("cases").items().size(), 100u);
    for (const auto& one : row.find("cases").items()) {
      const std::string input = one.find("text").string();
      const auto ids = ids_of(one.find("ids"));
      EXPECT_EQ(loaded.value()->encode(input), ids) << name << ": " << one.find("text").repr();
      EXPECT_EQ(loaded.value()->decode(ids, true).value(), one.find("decoded").string()) << name;
    }
  }
}

TEST(SentencePiece, ControlTokensComeFromTextOnlyWhenAskedFor) {
  const auto loaded = load_tokenizer(posix_files(), join_path(kFolder, "bpe.model"));
  ASSERT_TRUE(loaded.ok());
  const Tokenizer& tokenizer = *loaded.value();
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_TRUE(tokenizer.is_special(1));
  const auto plain = tokenizer.encode("a</s>");
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 2), 0);
  EXPECT_EQ(tokenizer.encode("a</s>", {.parse_special = true}).back(), 2);
  EXPECT_EQ(tokenizer.encode("a", {.add_special = true}).front(), 1);
}

TEST(SentencePiece, DamagedModelsAreRefused) {
  const auto bytes = read_text(posix_files(), join_path(kFolder, "bpe.model"), 1 << 24);
  ASSERT_TRUE(bytes.ok());
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string path = join_path(base != nullptr ? base : "/tmp", "damaged.model");
  for (const std::string& damaged : {std::string(), std::string("{}"), bytes.value().substr(0, 1000)}) {
    ASSERT_TRUE(write_text_atomically(posix_files(), path, damaged).ok());
    EXPECT_EQ(load_tokenizer(posix_files(), path).status().reason(), "tokenizer.bad_file");
  }
}

}  // namespace
}  // namespace invar
