#include "core/text/documents.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/text/byte_tokenizer.h"
#include "core/text/token_buffer.h"
#include "core/text/tokenized_text.h"

namespace invar {
namespace {

class Documents : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const char* base = std::getenv("TEST_TMPDIR");
    const std::string path = join_path(base != nullptr ? base : "/tmp", name);
    EXPECT_TRUE(write_text_atomically(posix_files(), path, text).ok());
    return path;
  }
  // The documents, or the error's reason and message in `failure`.
  std::vector<std::string> read(std::vector<std::string> paths, DocumentOptions options = {}) {
    DocumentReader reader(posix_files(), std::move(paths), options);
    std::vector<std::string> documents;
    std::string current;
    failure = {};
    while (true) {
      auto piece = reader.next();
      if (!piece.ok()) {
        failure = piece.status();
        return documents;
      }
      if (!*piece) return documents;
      current += (*piece)->text;
      longest_piece = std::max(longest_piece, (*piece)->text.size());
      if ((*piece)->ends_document) documents.push_back(std::exchange(current, {}));
    }
  }
  Status failure;
  size_t longest_piece = 0;
};

TEST_F(Documents, TextFileIsOneDocumentInPiecesThatEndAfterALine) {
  std::string text;
  for (int line = 0; line < 100; ++line) text += cat("line ", line, " \xE2\x82\xAC\n");
  const std::string path = write("a.txt", text);
  for (int64_t piece_bytes : {17, 64, 1000, 100000}) {
    longest_piece = 0;
    const auto documents = read({path, path}, {.piece_bytes = piece_bytes});
    ASSERT_EQ(documents.size(), 2u) << failure.message();
    EXPECT_EQ(documents[0], text);
    EXPECT_EQ(documents[1], text);
    EXPECT_LE(longest_piece, static_cast<size_t>(2 * piece_bytes));
  }
}

TEST_F(Documents, PiecesWithoutLinesNeverCutACharacter) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "\xF0\x9F\x98\x80";
  const std::string path = write("b.txt", text);
  DocumentReader reader(posix_files(), {path}, {.piece_bytes = 10});
  std::string all;
  while (true) {
    auto piece = reader.next();
    ASSERT_TRUE(piece.ok());
    if (!*piece) break;
    EXPECT_EQ((*piece)->text.size() % 4, 0u);
    all += (*piece)->text;
  }
  EXPECT_EQ(all, text);
}

TEST_F(Documents, JsonLinesAreDocumentsAndBlankLinesAreSkipped) {
  const std::string path =
      write("a.jsonl", "{\"text\":\"one\"}\n\n{\"id\":7,\"text\":\"two\\nlines \\u20ac\"}\r\n  \n{\"text\":\"\"}");
  const std::vector<std::string> expected = {"one", "two\nlines \xE2\x82\xAC", ""};
  for (int64_t piece_bytes : {5, 1 << 20}) EXPECT_EQ(read({path}, {.piece_bytes = piece_bytes}), expected);
}

TEST_F(Documents, ByteOrderMarkIsNoText) {
  EXPECT_EQ(read({write("bom.txt", "\xEF\xBB\xBFx")}), std::vector<std::string>{"x"});
  EXPECT_EQ(read({write("bom.jsonl", "\xEF\xBB\xBF{\"text\":\"x\"}")}), std::vector<std::string>{"x"});
}

TEST_F(Documents, ErrorsNameFileAndLine) {
  struct Case {
    std::string name, text, reason, part;
  };
  for (const Case& c : std::vector<Case>{
           {"c1.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"\n", "text.bad_json", "c1.jsonl:2: invalid JSON at byte"},
           {"c2.jsonl", "{\"text\":\"a\"}\n\n[1]\n", "text.bad_json", "c2.jsonl:3: a JSON array"},
           {"c3.jsonl", "{\"body\":\"a\"}\n", "text.missing_key", "c3.jsonl:1: no key \"text\""},
           {"c4.jsonl", "{\"text\":5}\n", "text.not_a_string", "c4.jsonl:1: \"text\" is a number"},
           {"c5.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\xFF\"}\n", "text.bad_utf8", "c5.jsonl:2: byte 22"},
           {"c6.txt", "one\ntwo\nthree \xC3(\n", "text.bad_utf8", "c6.txt:3: byte 15"},
           {"c7.txt", "cut \xE2\x82", "text.bad_utf8", "c7.txt:1: byte 6"},
           {"c8.jsonl", "{\"text\":\"\\ud800\"}", "text.bad_json", "c8.jsonl:1: invalid JSON"},
       }) {
    read({write(c.name, c.text)});
    EXPECT_EQ(failure.reason(), c.reason) << c.name;
    EXPECT_NE(failure.message().find(c.part), std::string::npos) << failure.message();
  }
  read({"/nonexistent/file.txt"});
  EXPECT_EQ(failure.code(), Code::kNotFound);
}

TEST_F(Documents, ALineAboveTheLimitIsRefused) {
  const std::string path = write("long.jsonl", "{\"text\":\"" + std::string(5000, 'x') + "\"}");
  read({path}, {.piece_bytes = 100, .max_line_bytes = 1000});
  EXPECT_EQ(failure.reason(), "text.line_too_long");
}

TEST_F(Documents, TokenizingClosesEachDocumentAndLeavesEmptyOnesOut) {
  const std::string path = write("t.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"\"}\n{\"text\":\"c\"}\n");
  const auto text = tokenize_files(posix_files(), {path}, {}, ByteTokenizer(), 512);
  ASSERT_TRUE(text.ok());
  std::vector<int32_t> ids(static_cast<size_t>(text->tokens.size()));
  text->tokens.copy(0, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{'a', 'b', 257, 'c', 257}));
  EXPECT_EQ(text->tokens.document_starts(), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(text->documents, 2);
  EXPECT_EQ(text->empty_documents, 1);
}

TEST_F(Documents, EmptyTextAndSmallVocabularyAreRefused) {
  const std::string path = write("empty.txt", "");
  EXPECT_EQ(tokenize_files(posix_files(), {path}, {}, ByteTokenizer(), 512).status().reason(), "text.empty");
  const auto small = tokenize_files(posix_files(), {path}, {}, ByteTokenizer(), 256).status();
  EXPECT_EQ(small.reason(), "text.vocabulary_mismatch");
  EXPECT_NE(small.message().find("259"), std::string::npos);
}

TEST_F(Documents, TokenFilesAreReadAndChecked) {
  const std::string path = write("ids.u16", std::string("\x01\x00\x02\x01\xFF\x00", 6));
  const auto tokens = read_token_file(posix_files(), path, 2, 300);
  ASSERT_TRUE(tokens.ok()) << tokens.status().message();
  std::vector<int32_t> ids(3);
  tokens->copy(0, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 258, 255}));
  const auto mismatch = read_token_file(posix_files(), path, 2, 258).status();
  EXPECT_EQ(mismatch.reason(), "text.vocabulary_mismatch");
  EXPECT_NE(mismatch.message().find("token 1 is 258"), std::string::npos);
  EXPECT_EQ(read_token_file(posix_files(), path, 4, 300).status().reason(), "text.token_file_size");
  const auto order = read_i32_file(posix_files(), write("order.i32", std::string("\x05\0\0\0\xFF\xFF\xFF\xFF", 8)));
  ASSERT_TRUE(order.ok());
  EXPECT_EQ(*order, (std::vector<int64_t>{5, -1}));
}

}  // namespace
}  // namespace invar
