// Feeds bytes to both readers of tokenizer files: tokenizer.json (what begins with a brace) and SentencePiece models.
// What must hold for any bytes: no crash, an error with a reason, or a tokenizer whose ids are in range and can be
// decoded, for any text.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/text/pipeline/pipeline_tokenizer.h"
#include "core/text/sentencepiece/sentencepiece_tokenizer.h"

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s does not hold\n", what);
  std::abort();
}

constexpr const char* kTexts[] = {"", "Hello, world! 123", "caf\xC3\xA9 \xE2\x96\x81 <0x41> \xF0\x9F\x98\x80",
                                  "\xFF\xFE broken", "   \n\t"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const bool json = bytes.find_first_not_of(" \t\r\n") == bytes.find('{');
  const auto tokenizer =
      json ? invar::PipelineTokenizer::parse(bytes, {}) : invar::SentencePieceTokenizer::parse(bytes, {});
  if (!tokenizer.ok()) {
    require(!tokenizer.status().reason().empty() && !tokenizer.status().message().empty(), "an error says why");
    return 0;
  }
  for (const char* text : kTexts) {
    const auto ids = tokenizer.value()->encode(text, {.add_special = true, .parse_special = true, .truncate = true});
    for (const int32_t id : ids) require(id >= 0 && id < tokenizer.value()->vocab_size(), "ids are in range");
    require(tokenizer.value()->decode(ids, false).ok(), "what was encoded can be decoded");
  }
  return 0;
}
