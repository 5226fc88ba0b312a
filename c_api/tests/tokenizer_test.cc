// Tokenizers, chat templates and data through the C interface.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "c_api/tests/abi_support.h"

namespace invar_test {
namespace {

constexpr const char* kTokenizer = "tests/cases/tokenizers/small-llama3";

struct ReleaseTokenizer {
  void operator()(invar_tokenizer* p) const { invar_tokenizer_release(p); }
};
using OwnedTokenizer = std::unique_ptr<invar_tokenizer, ReleaseTokenizer>;

class Tokenizers : public testing::Test {
 protected:
  OwnedTokenizer load(const std::string& path) {
    invar_tokenizer* tokenizer = nullptr;
    EXPECT_EQ(text_of(invar_tokenizer_load(runtime.get(), path.data(), path.size(), &tokenizer)), "ok");
    return OwnedTokenizer(tokenizer);
  }
  std::vector<int32_t> encode(invar_tokenizer* tokenizer, const std::string& text, uint32_t flags) {
    invar_bytes* bytes = nullptr;
    EXPECT_EQ(text_of(invar_tokenizer_encode(tokenizer, text.data(), text.size(), flags, &bytes)), "ok");
    const Owned<invar_bytes> owner(bytes);
    std::vector<int32_t> ids(invar_bytes_size(bytes) / sizeof(int32_t));
    if (!ids.empty()) std::memcpy(ids.data(), invar_bytes_data(bytes), ids.size() * sizeof(int32_t));
    return ids;
  }
  std::string decode(invar_tokenizer* tokenizer, const std::vector<int32_t>& ids, uint32_t flags) {
    invar_bytes* bytes = nullptr;
    EXPECT_EQ(text_of(invar_tokenizer_decode(tokenizer, ids.data(), ids.size(), flags, &bytes)), "ok");
    const Owned<invar_bytes> owner(bytes);
    return string_of(bytes);
  }
  std::string in_scratch(const std::string& name, const std::string& text = "") {
    const char* base = std::getenv("TEST_TMPDIR");
    const std::string path = std::string(base != nullptr ? base : "/tmp") + "/" + name;
    if (!text.empty()) std::ofstream(path) << text;
    return path;
  }
  Owned<invar_runtime> runtime = make_runtime();
};

TEST_F(Tokenizers, EncodeAndDecodeByTheirFlags) {
  const auto tokenizer = load(kTokenizer);
  const auto plain = encode(tokenizer.get(), "Hello<|eot_id|>", 0);
  const auto special =
      encode(tokenizer.get(), "Hello<|eot_id|>", INVAR_ENCODE_ADD_SPECIAL | INVAR_ENCODE_PARSE_SPECIAL);
  EXPECT_GT(plain.size(), special.size());
  EXPECT_EQ(special.front(), 0);
  EXPECT_EQ(special.back(), 2);
  EXPECT_EQ(decode(tokenizer.get(), special, 0), "<|begin_of_text|>Hello<|eot_id|>");
  EXPECT_EQ(decode(tokenizer.get(), special, INVAR_DECODE_SKIP_SPECIAL), "Hello");
  // Half a character: bytes as they are, or a replacement.
  auto half = encode(tokenizer.get(), "\xE2\x98\x83", 0);
  half.pop_back();
  EXPECT_EQ(decode(tokenizer.get(), half, 0), "\xEF\xBF\xBD");
  EXPECT_EQ(decode(tokenizer.get(), half, INVAR_DECODE_BYTES).size(), 2u);
  EXPECT_EQ(encode(tokenizer.get(), "", 0).size(), 0u);
}

TEST_F(Tokenizers, RefuseWhatTheyDoNotKnow) {
  const auto tokenizer = load(kTokenizer);
  invar_bytes* bytes = nullptr;
  EXPECT_EQ(reason_of(invar_tokenizer_encode(tokenizer.get(), "a", 1, 64, &bytes)), "argument.flags");
  EXPECT_EQ(reason_of(invar_tokenizer_encode(tokenizer.get(), "\xFF", 1, 0, &bytes)), "text.bad_utf8");
  const int32_t id = 1 << 20;
  EXPECT_EQ(reason_of(invar_tokenizer_decode(tokenizer.get(), &id, 1, 0, &bytes)), "tokenizer.id_out_of_range");
  EXPECT_EQ(reason_of(invar_tokenizer_decode(tokenizer.get(), &id, 1, 64, &bytes)), "argument.flags");
  invar_tokenizer* none = nullptr;
  EXPECT_EQ(code_of(invar_tokenizer_load(runtime.get(), "absent", 6, &none)), INVAR_NOT_FOUND);
  EXPECT_EQ(none, nullptr);
}

TEST_F(Tokenizers, WorkFromSeveralThreadsAndOutliveTheirRuntime) {
  const auto tokenizer = load(kTokenizer);
  runtime.reset();
  const auto expected = encode(tokenizer.get(), "The quick brown fox 123", 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        EXPECT_EQ(encode(tokenizer.get(), "The quick brown fox 123", 0), expected);
        EXPECT_EQ(decode(tokenizer.get(), expected, 0), "The quick brown fox 123");
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(Tokenizers, WriteConversationsByATemplate) {
  const auto tokenizer = load(kTokenizer);
  const std::string source = in_scratch("t.jinja", "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}");
  const std::string config = message(
      runtime.get(), "ChatConfig",
      R"({"messages_json": "[{\"role\": \"user\", \"content\": \"hi\"}]", "template_path": ")" + source + "\"}");
  invar_bytes* bytes = nullptr;
  ASSERT_EQ(text_of(invar_tokenizer_chat(tokenizer.get(), config.data(), config.size(), &bytes)), "ok");
  const Owned<invar_bytes> owner(bytes);
  EXPECT_EQ(string_of(bytes), "user:hi;");
  const std::string bare = message(runtime.get(), "ChatConfig", R"({"messages_json": "[]"})");
  EXPECT_EQ(reason_of(invar_tokenizer_chat(tokenizer.get(), bare.data(), bare.size(), &bytes)), "template.none");
  const std::string broken =
      message(runtime.get(), "ChatConfig", R"({"messages_json": "{", "template_path": ")" + source + "\"}");
  EXPECT_EQ(reason_of(invar_tokenizer_chat(tokenizer.get(), broken.data(), broken.size(), &bytes)),
            "template.bad_json");
}

TEST_F(Tokenizers, TrainPreviewAndTellAboutThemselves) {
  const std::string corpus = in_scratch("corpus.txt", "banana bananas banana bandana\n");
  const std::string out = in_scratch("trained.json");
  const std::string config =
      message(runtime.get(), "TokenizerTrainConfig",
              R"({"paths": [")" + corpus + R"("], "vocab_size": 260, "output": ")" + out + "\"}");
  invar_bytes* bytes = nullptr;
  ASSERT_EQ(text_of(invar_tokenizer_train(runtime.get(), config.data(), config.size(), nullptr, nullptr, &bytes)),
            "ok");
  const Owned<invar_bytes> report(bytes);
  EXPECT_LT(encode(load(out).get(), "banana", 0).size(), 6u);
  bytes = nullptr;
  ASSERT_EQ(text_of(invar_tokenizer_info(load(out).get(), &bytes)), "ok");
  const Owned<invar_bytes> info(bytes);
  EXPECT_GT(invar_bytes_size(bytes), 0u);
  const std::string data = in_scratch("d.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  const std::string preview =
      message(runtime.get(), "PreviewConfig",
              R"({"data": {"paths": [")" + data + R"("], "tokenizer": {"path": ")" + out + "\"}}}");
  bytes = nullptr;
  ASSERT_EQ(text_of(invar_data_preview(runtime.get(), preview.data(), preview.size(), nullptr, nullptr, &bytes)), "ok");
  const Owned<invar_bytes> previewed(bytes);
  EXPECT_GT(invar_bytes_size(bytes), 0u);
}

}  // namespace
}  // namespace invar_test
