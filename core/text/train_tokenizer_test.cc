// The trainer learns what the Hugging Face trainer learned from the same file.
#include "core/text/train_tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/text/template/value.h"
#include "core/text/tokenizer.h"

namespace invar {
namespace {

constexpr const char* kFolder = "tests/cases/tokenizers/trainer";

TEST(TrainTokenizer, LearnsTheMergesOfTheHuggingFaceTrainer) {
  const auto text = read_text(posix_files(), join_path(kFolder, "expected.json"), 1 << 24);
  ASSERT_TRUE(text.ok());
  const auto expected = chat::value_of_json(text.value());
  ASSERT_TRUE(expected.ok());
  BpeTrainer trainer({.vocab_size = expected.value().find("size").integer()});
  const auto corpus = read_text(posix_files(), join_path(kFolder, "corpus.txt"), 1 << 24);
  ASSERT_TRUE(corpus.ok());
  for (size_t at = 0; at < corpus.value().size();) {
    const size_t end = std::min(corpus.value().find('\n', at), corpus.value().size() - 1) + 1;
    trainer.feed(std::string_view(corpus.value()).substr(at, end - at));
    at = end;
  }
  const auto trained = trainer.learn({});
  ASSERT_TRUE(trained.ok()) << trained.status().message();
  const auto& tokens = expected.value().find("tokens").items();
  ASSERT_EQ(trained.value().tokens.size(), tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(trained.value().tokens[i], tokens[i].string()) << i;
  const auto& merges = expected.value().find("merges").items();
  ASSERT_EQ(trained.value().merges.size(), merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right] = trained.value().merges[i];
    EXPECT_EQ(trained.value().tokens[static_cast<size_t>(left)], merges[i].items()[0].string()) << i;
    EXPECT_EQ(trained.value().tokens[static_cast<size_t>(right)], merges[i].items()[1].string()) << i;
  }
}

TEST(TrainTokenizer, WritesAFileThatLoadsAndGivesTheTextBack) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string folder = join_path(base != nullptr ? base : "/tmp", "trained");
  const auto trained = train_tokenizer(posix_files(), {join_path(kFolder, "corpus.txt")}, {}, {.vocab_size = 700}, {});
  ASSERT_TRUE(trained.ok()) << trained.status().message();
  EXPECT_EQ(trained.value().vocab_size, 700);
  EXPECT_EQ(trained.value().merges, 700 - 257);
  EXPECT_EQ(trained.value().documents, 1);
  ASSERT_TRUE(save_trained_tokenizer(trained.value(), posix_files(), folder).ok());
  const auto loaded = load_tokenizer(posix_files(), folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded.value()->vocab_size(), 700);
  EXPECT_EQ(loaded.value()->eos_id(), 0);
  const std::string text = "Banana bread in Z\xC3\xBCrich,\n\tnow.<|endoftext|>";
  const auto ids = loaded.value()->encode(text);
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ(loaded.value()->decode(ids, false).value(), text);
  EXPECT_EQ(loaded.value()->encode("<|endoftext|>", {.parse_special = true}), std::vector<int32_t>{0});
}

TEST(TrainTokenizer, NamesASizeWithoutRoom) {
  const auto trained = train_tokenizer(posix_files(), {join_path(kFolder, "corpus.txt")}, {}, {.vocab_size = 256}, {});
  EXPECT_EQ(trained.status().reason(), "tokenizer.vocab_size");
}

}  // namespace
}  // namespace invar
