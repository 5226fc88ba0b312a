// Damaged and hostile tokenizer files end in a named error or a tokenizer that works, never in a crash.
#include <gtest/gtest.h>

#include <random>

#include "core/text/pipeline/pipeline_tokenizer.h"

namespace invar {
namespace {

constexpr const char* kTexts[] = {"", "Hello, world! 123", "caf\xC3\xA9 \xE2\x96\x81 <0x41> \xF0\x9F\x98\x80",
                                  "\xFF\xFE broken", "   \n\t"};

std::string read(const std::string& name) {
  auto text = read_text(posix_files(), cat("tests/cases/tokenizers/", name, "/tokenizer.json"), 1 << 24);
  EXPECT_TRUE(text.ok());
  return text.ok() ? text.value() : std::string();
}

void use(const std::string& json) {
  const auto tokenizer = PipelineTokenizer::parse(json, {});
  if (!tokenizer.ok()) {
    EXPECT_FALSE(tokenizer.status().reason().empty());
    return;
  }
  for (const char* text : kTexts) {
    const auto ids = tokenizer.value()->encode(text, {.add_special = true, .parse_special = true, .truncate = true});
    (void)tokenizer.value()->decode(ids, false).ok();
  }
}

class DamagedTokenizers : public testing::TestWithParam<const char*> {};

TEST_P(DamagedTokenizers, AnyDamageIsAnErrorOrATokenizer) {
  const std::string good = read(GetParam());
  std::mt19937 random(1);
  constexpr std::string_view kBytes = "{}[]\",:0123456789-.eE\\untrfalse ";
  for (int round = 0; round < 150; ++round) {
    std::string bad = good;
    for (int change = 0; change < 1 + round % 4; ++change) {
      // Stages lie at the beginning and the end, the vocabulary between them.
      const size_t reach = std::min<size_t>(bad.size(), 1500);
      const size_t at = random() % 2 == 0 ? random() % reach : bad.size() - 1 - random() % reach;
      switch (random() % 3) {
        case 0: bad[at] = kBytes[random() % kBytes.size()]; break;
        case 1: bad.erase(at, 1 + random() % 8); break;
        default: bad.insert(at, 1 + random() % 3, kBytes[random() % kBytes.size()]); break;
      }
    }
    use(bad);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DamagedTokenizers, testing::Values("small-llama3", "small-spbpe", "small-unigram"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

std::string reason_of(const std::string& json) { return PipelineTokenizer::parse(json, {}).status().reason(); }

std::string bpe(const std::string& vocab, const std::string& merges, const std::string& more = "") {
  return cat(R"({"model": {"type": "BPE", "vocab": )", vocab, R"(, "merges": )", merges, "}", more, "}");
}

TEST(HostileTokenizers, AreRefusedByName) {
  EXPECT_EQ(reason_of(""), "tokenizer.bad_file");
  EXPECT_EQ(reason_of("[]"), "tokenizer.bad_file");
  EXPECT_EQ(reason_of("{}"), "tokenizer.bad_file");
  EXPECT_EQ(reason_of(std::string(200000, '[')), "tokenizer.bad_file");
  EXPECT_EQ(reason_of(bpe(R"({"a": 4294967295})", "[]")), "tokenizer.bad_file");
  EXPECT_EQ(reason_of(bpe(R"({"a": 18446744073709551615})", "[]")), "tokenizer.bad_file");
  EXPECT_EQ(reason_of(bpe(R"({"a": 2000000000})", "[]")), "tokenizer.bad_file");
  EXPECT_EQ(reason_of(bpe(R"({"a": -1})", "[]")), "tokenizer.bad_file");
  EXPECT_EQ(reason_of(bpe(R"({"a": 0, "b": 0})", "[]")), "tokenizer.bad_file");
  EXPECT_EQ(reason_of(bpe(R"({"a": 0, "b": 1})", R"([["a", "b"]])")), "tokenizer.bad_file");
  EXPECT_EQ(reason_of(bpe(R"({"a": 0})", R"(["a"])")), "tokenizer.bad_file");
  EXPECT_EQ(reason_of(bpe("{}", "[]", R"(, "normalizer": {"type": "BertNormalizer"})")), "tokenizer.unsupported");
  EXPECT_EQ(reason_of(bpe("{}", "[]", R"(, "pre_tokenizer": {"type": "UnicodeScripts"})")), "tokenizer.unsupported");
  EXPECT_EQ(reason_of(bpe("{}", "[]", R"(, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}})")),
            "tokenizer.bad_regex");
  EXPECT_EQ(reason_of(bpe("{}", "[]", R"(, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}+"}})")),
            "tokenizer.unsupported");
  EXPECT_EQ(reason_of(bpe("{}", "[]", R"(, "decoder": {"type": "CTC"})")), "tokenizer.unsupported");
  EXPECT_EQ(reason_of(R"({"model": {"type": "WordPiece", "vocab": {}}})"), "tokenizer.unsupported");
  EXPECT_EQ(reason_of(R"({"model": {"type": "Unigram", "vocab": [["a", 1]], "unk_id": 5}})"), "tokenizer.bad_file");
  EXPECT_EQ(reason_of(R"({"model": {"type": "Unigram", "vocab": [["a", "x"]]}})"), "tokenizer.bad_file");
}

TEST(HostileTokenizers, ARegexThatBacktracksWithoutEndFinishes) {
  const auto tokenizer = PipelineTokenizer::parse(
      bpe(R"({"a": 0})", "[]", R"(, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$b"}})"), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer.value()->encode(std::string(40, 'a')).size(), 40u);
}

TEST(Truncation, FollowsTheFileWhenAskedFor) {
  const std::string vocab = R"({"a": 0, "b": 1, "c": 2, "<s>": 3})";
  for (const bool left : {false, true}) {
    const auto tokenizer = PipelineTokenizer::parse(
        bpe(vocab, "[]",
            cat(R"(, "truncation": {"max_length": 3, "direction": ")", left ? "Left" : "Right",
                R"("}, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}},
                {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [3]}}})")),
        {});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    EXPECT_EQ(tokenizer.value()->encode("abca", {.add_special = true, .truncate = true}),
              left ? (std::vector<int32_t>{3, 2, 0}) : (std::vector<int32_t>{3, 0, 1}));
    EXPECT_EQ(tokenizer.value()->encode("abca", {.truncate = true}).size(), 3u);
    EXPECT_EQ(tokenizer.value()->encode("abca").size(), 4u);
  }
}

}  // namespace
}  // namespace invar
