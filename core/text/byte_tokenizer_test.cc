#include "core/text/byte_tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace invar {
namespace {

std::string scratch(const std::string& name) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string folder = join_path(base != nullptr ? base : "/tmp", name);
  EXPECT_TRUE(posix_files().remove_all(folder).ok());
  EXPECT_TRUE(posix_files().make_directories(folder).ok());
  return folder;
}

TEST(ByteTokenizer, EveryByteIsItsOwnIdAndComesBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  ByteTokenizer tokenizer;
  const auto ids = tokenizer.encode(all);
  ASSERT_EQ(ids.size(), 256u);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[static_cast<size_t>(byte)], byte);
  const auto back = tokenizer.decode(ids, true);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, all);
}

TEST(ByteTokenizer, SpecialTokensAreParsedOnlyOnRequest) {
  ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.encode("<|eos|>").size(), 7u);
  const std::vector<int32_t> expected = {256, 'a', 257, '<', '|'};
  EXPECT_EQ(tokenizer.encode("a<|eos|><|", {.add_special = true, .parse_special = true}), expected);
  EXPECT_EQ(*tokenizer.decode(expected, false), "<|bos|>a<|eos|><|");
  EXPECT_EQ(*tokenizer.decode(expected, true), "a<|");
}

TEST(ByteTokenizer, NamesAnIdOutOfRange) {
  const auto result = ByteTokenizer().decode(std::vector<int32_t>{1, 300}, true);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(), "token 1 is 300; ids lie in [0, 259)");
}

TEST(ByteTokenizer, SavedFileHoldsEachIdOnceAndLoadsAgain) {
  const std::string folder = scratch("tokenizer");
  ASSERT_TRUE(save_tokenizer(ByteTokenizer(), posix_files(), folder).ok());
  const auto text = read_text(posix_files(), join_path(folder, "tokenizer.json"), 1 << 20);
  ASSERT_TRUE(text.ok());
  const auto json = nlohmann::json::parse(*text);
  std::vector<int> seen(ByteTokenizer::kVocabSize, 0);
  for (const auto& [token, id] : json["model"]["vocab"].items()) ++seen.at(id.get<size_t>());
  for (int count : seen) EXPECT_EQ(count, 1);
  // Spot checks against the published byte-to-character table.
  EXPECT_EQ(json["model"]["vocab"]["A"], 65);
  EXPECT_EQ(json["model"]["vocab"]["\u0120"], 32);
  EXPECT_EQ(json["model"]["vocab"]["\u010A"], 10);
  EXPECT_EQ(json["model"]["vocab"]["\u0143"], 0xAD);
  for (const std::string& path : {folder, join_path(folder, "tokenizer.json")}) {
    const auto loaded = load_tokenizer(posix_files(), path);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_EQ((*loaded)->eos_id(), ByteTokenizer::kEos);
  }
}

TEST(LoadTokenizer, SaysWhatIsNotSupportedAndWhatIsNoTokenizer) {
  const std::string folder = scratch("foreign");
  const std::string path = join_path(folder, "tokenizer.json");
  auto json = nlohmann::json::parse(ByteTokenizer::tokenizer_json());
  json["model"]["merges"].push_back("a b");
  ASSERT_TRUE(write_text_atomically(posix_files(), path, json.dump()).ok());
  const auto merges = load_tokenizer(posix_files(), folder);
  EXPECT_EQ(merges.status().reason(), "tokenizer.bad_file");
  EXPECT_NE(merges.status().message().find("merge 0, \"a\" and \"b\""), std::string::npos);
  json["model"]["type"] = "WordPiece";
  ASSERT_TRUE(write_text_atomically(posix_files(), path, json.dump()).ok());
  const auto model = load_tokenizer(posix_files(), folder);
  EXPECT_EQ(model.status().reason(), "tokenizer.unsupported");
  EXPECT_NE(model.status().message().find("\"WordPiece\" is not supported; supported: BPE, Unigram"),
            std::string::npos);
  ASSERT_TRUE(write_text_atomically(posix_files(), path, "{]").ok());
  EXPECT_EQ(load_tokenizer(posix_files(), folder).status().reason(), "tokenizer.bad_file");
}

}  // namespace
}  // namespace invar
