// Records of every layout to ids and marks.
#include "core/text/example.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/text/byte_tokenizer.h"
#include "core/text/chat.h"
#include "core/text/data_options.h"
#include "core/text/example_encoder.h"
#include "core/text/preview.h"
#include "core/text/sequences.h"
#include "core/text/tokenized_text.h"

namespace invar {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

std::string write(const std::string& name, const std::string& text) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string path = join_path(base != nullptr ? base : "/tmp", name);
  EXPECT_TRUE(write_text_atomically(posix_files(), path, text).ok());
  return path;
}

// The text of the encoded record with what is trained in brackets, "$" for the end token; or the error's reason.
std::string shown(const std::string& record, LossOn loss = LossOn::kAuto, const std::string& source = kTemplate) {
  const ByteTokenizer tokenizer;
  const auto example = parse_example(record, ExampleFormat::kAuto, "text");
  if (!example.ok()) return example.status().reason() + ": " + example.status().message();
  std::shared_ptr<const ChatTemplate> chat;
  if (!source.empty()) chat = chat_template_from(source, tokenizer).value();
  const auto encoded = ExampleEncoder(tokenizer, chat, loss).encode(example.value());
  if (!encoded.ok()) return encoded.status().reason();
  std::string out;
  bool open = false;
  for (size_t i = 0; i < encoded.value().ids.size(); ++i) {
    if (encoded.value().trained[i] != open) out += open ? "]" : "[";
    open = encoded.value().trained[i];
    const int32_t id = encoded.value().ids[i];
    out += id < 256 ? static_cast<char>(id) : '$';
  }
  return open ? out + "]" : out;
}

TEST(Examples, EachLayoutTrainsWhatTheModelWrites) {
  EXPECT_EQ(shown(R"({"text": "abc"})"), "[abc$]");
  EXPECT_EQ(shown(R"({"prompt": "2+2=", "completion": "4"})"), "2+2=[4$]");
  EXPECT_EQ(shown(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                      {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})"),
            "<user>a</s><assistant>[b</s>]<user>c</s><assistant>[d</s>]");
  EXPECT_EQ(shown(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})"),
            "<user>a</s><assistant>[b</s>]");
  EXPECT_EQ(shown(R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "x"},
                      {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})"),
            "<user>a</s><assistant>x</s><user>c</s><assistant>[d</s>]");
  EXPECT_EQ(shown(R"({"instruction": "i", "input": "n", "output": "o"})"), "<user>i\n\nn</s><assistant>[o</s>]");
  EXPECT_EQ(shown(R"({"instruction": "i", "input": "", "output": "o"})", LossOn::kAuto, ""),
            "### Instruction:\ni\n\n### Response:\n[o$]");
  EXPECT_EQ(shown(R"({"input_ids": [97, 98, 99, 257], "labels": [-100, -100, 99, 257]})"), "ab[c$]");
  EXPECT_EQ(shown(R"({"input_ids": [97, 98], "attention_mask": [1, 0]})"), "[a]b");
}

TEST(Examples, TheLossCanBeOnAllTokensOrOnRepliesOnly) {
  EXPECT_EQ(shown(R"({"prompt": "a", "completion": "b"})", LossOn::kAll), "[ab$]");
  EXPECT_EQ(shown(R"({"messages": [{"role": "user", "content": "a"}]})", LossOn::kAll), "[<user>a</s>]");
  EXPECT_EQ(shown(R"({"text": "abc"})", LossOn::kCompletion), "text.no_completion");
}

TEST(Examples, GenerationMarksDecideWhereATemplateHasThem) {
  EXPECT_EQ(
      shown(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})", LossOn::kAuto,
            "{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content }}"
            "{% endgeneration %};{% else %}U:{{ m.content }};{% endif %}{% endfor %}"),
      "U:a;A:[b];");
}

TEST(Examples, RepliesAreFoundInTemplatesThatRewriteEarlierTurns) {
  // The number of all messages stands first, so that no beginning of the conversation begins the whole.
  EXPECT_EQ(shown(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " b "},
                      {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})",
                  LossOn::kAuto,
                  "{{ messages | length }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}"),
            "4<user>a</s><assistant>[b</s>]<user>c</s><assistant>[d</s>]");
  EXPECT_EQ(shown(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "hidden"}]})",
                  LossOn::kAuto, "{{ messages | length }}"),
            "template.no_span");
}

TEST(Examples, SayWhatIsWrongWithARecord) {
  EXPECT_EQ(shown("[1]"), "text.bad_json: a JSON array; every line must be an object");
  EXPECT_TRUE(shown("{\"a\": 1}").starts_with("text.missing_key: no key \"text\""));
  EXPECT_EQ(shown(R"({"prompt": 1, "completion": "x"})"),
            "text.not_a_string: \"prompt\" is a number, expected a string");
  EXPECT_EQ(shown(R"({"messages": []})"), "text.bad_record: \"messages\" is no list of messages");
  EXPECT_EQ(shown(R"({"messages": [{"content": "a"}]})"),
            "text.bad_record: \"messages\"[0] is no object with a \"role\"");
  EXPECT_EQ(shown(R"({"input_ids": [1, 2], "labels": [1]})"),
            "text.bad_record: \"labels\" has 1 entries, \"input_ids\" 2");
  EXPECT_EQ(
      shown(R"({"input_ids": [1, 2], "labels": [2, -100]})"),
      "text.bad_record: \"labels\"[0] is 2, neither the id 1 nor negative: labels stand at their own token's place");
  EXPECT_EQ(shown(R"({"conversations": [{"from": "martian", "value": "a"}]})").substr(0, 63),
            "text.bad_record: \"conversations\"[0] is from \"martian\"; known: h");
  EXPECT_EQ(shown(R"({"messages": [{"role": "user", "content": "a"}]})", LossOn::kAuto, ""), "template.none");
}

Result<TokenizedText> read(const std::vector<std::string>& paths, TokenizeOptions options = {}) {
  options.chat_template = kTemplate;
  return tokenize_files(posix_files(), paths, options, ByteTokenizer(), 512);
}

TEST(TokenizedText, MixesLayoutsAndCountsTrainedTokens) {
  const std::string path =
      write("mixed.jsonl", "{\"text\": \"ab\"}\n{\"prompt\": \"c\", \"completion\": \"d\"}\n{\"text\": \"\"}\n");
  const auto text = read({path});
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->documents, 2);
  EXPECT_EQ(text->empty_documents, 1);
  EXPECT_EQ(text->tokens.size(), 6);
  EXPECT_EQ(text->trained_tokens, 5);
  EXPECT_TRUE(text->has_records);
  EXPECT_TRUE(text->tokens.trained(0));
  EXPECT_FALSE(text->tokens.trained(3));
  EXPECT_EQ(document_source(text->tokens, text->paths, 1), path + ":2");
}

TEST(TokenizedText, OneJsonArrayIsReadAsItsElements) {
  const std::string path = write("array.json", "[\n {\"text\": \"a, ]\"},\n\n {\"text\": \"b\"}]\n");
  const auto text = read({path});
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->documents, 2);
  EXPECT_EQ(document_source(text->tokens, text->paths, 1), path + ":4");
  EXPECT_EQ(read({write("open.json", "[{\"text\": \"a\"}")}).status().reason(), "text.bad_json");
}

TEST(TokenizedText, ErrorsNameFileAndLine) {
  const std::string path = write("bad.jsonl", "{\"text\": \"a\"}\n\n{\"messages\": 5}\n");
  const auto text = read({path});
  EXPECT_EQ(text.status().message(), path + ":3: \"messages\" is no list of messages");
}

TEST(TokenizedText, ARunInWhichEveryLabelIsMaskedFailsWithTheSamples) {
  const std::string path = write("masked.jsonl",
                                 "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
                                 "{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n");
  const auto text = read({path});
  EXPECT_EQ(text.status().reason(), "text.all_masked");
  EXPECT_NE(text.status().message().find(path + ":1, " + path + ":2"), std::string::npos) << text.status().message();
}

TEST(TokenizedText, FormatsThatAreNotReadAreRefusedWithTheWayToConvert) {
  for (const char* name : {"a.parquet", "a.arrow", "a.csv", "a.idx", "a.jsonl.gz", "a.npy"}) {
    const auto status = read({write(name, "x")}).status();
    EXPECT_EQ(status.reason(), "text.unsupported_format") << name;
    EXPECT_NE(status.message().find("convert it"), std::string::npos) << status.message();
  }
  const std::string bin = write("pair.bin", "ab");
  write("pair.idx", "x");
  EXPECT_NE(read({bin}).status().message().find("Megatron"), std::string::npos);
}

TEST(TokenizedText, TokenFilesOfNanoGptAndLlmC) {
  const auto bare = read({write("bare.bin", std::string("\x01\x00\x02\x00", 4))});
  ASSERT_TRUE(bare.ok()) << bare.status().message();
  EXPECT_EQ(bare->tokens.size(), 2);
  const auto header = [](uint32_t magic, uint32_t count) {
    std::string text(1024, '\0');
    for (int b = 0; b < 4; ++b) {
      text[static_cast<size_t>(b)] = static_cast<char>(magic >> 8 * b);
      text[static_cast<size_t>(8 + b)] = static_cast<char>(count >> 8 * b);
    }
    return text;
  };
  const auto narrow = read({write("narrow.bin", header(20240520, 2) + std::string("\x05\x00\x01\x01", 4))});
  ASSERT_TRUE(narrow.ok()) << narrow.status().message();
  std::vector<int32_t> ids(2);
  narrow->tokens.copy(0, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{5, 257}));
  const auto wide = read({write("wide.bin", header(20240801, 1) + std::string("\x07\x00\x00\x00", 4))});
  ASSERT_TRUE(wide.ok()) << wide.status().message();
  EXPECT_EQ(wide->tokens.size(), 1);
  EXPECT_EQ(read({write("cut.bin", header(20240801, 3) + "abcd")}).status().reason(), "text.token_file_size");
  EXPECT_EQ(read({write("ids.bin", "\xFF\xFF")}).status().reason(), "text.vocabulary_mismatch");
}

TEST(TokenizedText, WeightsRepeatAndThinOutFiles) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "{\"text\": \"a\"}\n";
  const std::string a = write("wa.jsonl", many), b = write("wb.txt", "text\n");
  TokenizeOptions options;
  options.weights = {0.25, 3};
  const auto text = read({a, b}, options);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_NEAR(static_cast<double>(text->documents), 250 + 3, 60);
  EXPECT_EQ(text->tokens.digest(), read({a, b}, options)->tokens.digest());
  options.weights = {1};
  EXPECT_EQ(read({a, b}, options).status().reason(), "text.weights");
}

// Documents of the given sizes; of each, only the last token is trained when `masked`.
std::shared_ptr<const TokenBuffer> documents_of(const std::vector<int>& sizes, bool masked = false) {
  auto tokens = std::make_shared<TokenBuffer>(1000);
  for (size_t i = 0; i < sizes.size(); ++i) {
    tokens->begin_document({0, static_cast<int64_t>(i) + 1});
    std::vector<int32_t> ids;
    for (int k = 0; k < sizes[i]; ++k) ids.push_back(static_cast<int32_t>(i) * 100 + k);
    std::vector<bool> trained(ids.size(), !masked);
    trained.back() = true;
    EXPECT_TRUE(tokens->append(ids, trained).ok());
  }
  return tokens;
}

TEST(WholePacking, KeepsDocumentsWholeAndApart) {
  const auto sequences = Sequences::create(documents_of({4, 6, 3, 5}), {.length = 8, .packing = Packing::kWhole});
  ASSERT_TRUE(sequences.ok()) << sequences.status().message();
  ASSERT_EQ(sequences->training(), 3);
  TokenBatch batch;
  for (int64_t i = 0; i < 3; ++i) sequences->append_training(i, &batch);
  EXPECT_EQ(batch.tokens(), 18);
  EXPECT_EQ(batch.sequences, 3);
  // Each span is one document: ids of one hundred, targets the next ids, the last without a target.
  ASSERT_EQ(batch.offsets.size(), 5u);
  for (size_t span = 0; span + 1 < batch.offsets.size(); ++span) {
    const auto begin = static_cast<size_t>(batch.offsets[span]), end = static_cast<size_t>(batch.offsets[span + 1]);
    for (size_t i = begin; i < end; ++i) {
      EXPECT_EQ(batch.ids[i] / 100, batch.ids[begin] / 100);
      EXPECT_EQ(batch.targets[i], i + 1 < end ? batch.ids[i] + 1 : -1);
    }
  }
  EXPECT_EQ(sequences->counts().trained_tokens, 14);
}

TEST(WholePacking, PredictsWithoutLossWhatIsNotTrained) {
  const auto sequences = Sequences::create(documents_of({4}, true), {.length = 8, .packing = Packing::kWhole});
  ASSERT_TRUE(sequences.ok());
  TokenBatch batch;
  sequences->append_training(0, &batch);
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{-1, -1, 3, -1}));
}

TEST(WholePacking, TruncatesAsAskedAndLeavesOutWhatBecomesMasked) {
  SequenceOptions options{.length = 4, .packing = Packing::kWhole};
  auto sequences = Sequences::create(documents_of({3, 6}, true), options);
  ASSERT_TRUE(sequences.ok());
  EXPECT_EQ(sequences->counts().truncated, 1);
  EXPECT_EQ(sequences->counts().masked, 1);  // the trained token was cut off
  EXPECT_EQ(sequences->counts().masked_samples, (std::vector<int64_t>{1}));
  options.truncation = Truncation::kKeepEnd;
  sequences = Sequences::create(documents_of({3, 6}, true), options);
  ASSERT_TRUE(sequences.ok());
  EXPECT_EQ(sequences->counts().masked, 0);
  EXPECT_EQ(sequences->training(), 2);
  options.truncation = Truncation::kDrop;
  EXPECT_EQ(Sequences::create(documents_of({3, 6}, true), options)->counts().dropped, 1);
  options.truncation = Truncation::kRefuse;
  EXPECT_EQ(Sequences::create(documents_of({3, 6}, true), options).status().reason(), "text.document_too_long");
  options.truncation = Truncation::kKeepStart;
  EXPECT_EQ(Sequences::create(documents_of({9, 6}, true), options).status().reason(), "text.all_masked");
}

TEST(WholePacking, HoldsOutTheLastDocuments) {
  const auto sequences = Sequences::create(documents_of({4, 4, 4, 4}),
                                           {.length = 8, .packing = Packing::kWhole, .heldout_fraction = 0.25});
  ASSERT_TRUE(sequences.ok());
  EXPECT_EQ(sequences->training(), 2);
  EXPECT_EQ(sequences->heldout(), 1);
  TokenBatch batch;
  sequences->append_heldout(0, &batch);
  EXPECT_EQ(batch.ids.front(), 300);
}

TEST(Preview, ShowsTokensWithTheirMarks) {
  v1::PreviewConfig config;
  config.mutable_data()->add_paths(write("preview.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n"));
  config.mutable_data()->set_sequence_length(8);
  config.set_samples(3);
  config.set_max_tokens(2);
  const auto report = preview_data(config, ByteTokenizer(), posix_files(), nullptr);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->samples_size(), 1);
  EXPECT_EQ(report->samples(0).tokens(), 3);
  ASSERT_EQ(report->samples(0).shown_size(), 2);
  EXPECT_EQ(report->samples(0).shown(0).text(), "a");
  EXPECT_FALSE(report->samples(0).shown(0).trained());
  EXPECT_TRUE(report->samples(0).shown(1).trained());
  EXPECT_EQ(report->trained_tokens(), 2);
  EXPECT_EQ(report->sequences(), 1);
}

}  // namespace
}  // namespace invar
