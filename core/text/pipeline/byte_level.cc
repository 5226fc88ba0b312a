#include "core/text/pipeline/byte_level.h"

#include "core/text/pipeline/json_stage.h"
#include "core/text/pipeline/split_pieces.h"
#include "core/text/pipeline/unicode.h"
#include "core/text/utf8.h"

namespace invar {
namespace {

constexpr bool is_printable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::array<uint32_t, 256> make_code_points() {
  std::array<uint32_t, 256> code_points{};
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) code_points[byte] = is_printable(byte) ? byte : next++;
  return code_points;
}
constexpr std::array<uint32_t, 256> kCodePoints = make_code_points();

constexpr std::array<int16_t, 0x144> make_bytes() {
  std::array<int16_t, 0x144> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (size_t byte = 0; byte < 256; ++byte) bytes[kCodePoints[byte]] = static_cast<int16_t>(byte);
  return bytes;
}
constexpr std::array<int16_t, 0x144> kBytes = make_bytes();

// The words of GPT-2: contractions, letters, digits and others with the space before them, runs of spaces.
constexpr std::string_view kWords = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(std::unique_ptr<Regex> words, bool prefix_space, bool map_bytes)
      : words_(std::move(words)), prefix_space_(prefix_space), map_bytes_(map_bytes), characters_(byte_characters()) {}

  void apply(Pieces* pieces, Scratch& scratch) const override {
    if (prefix_space_) {
      rewrite(pieces, [](std::string_view piece, std::string* out) {
        if (piece.substr(0, 1) != " ") *out += ' ';
        *out += piece;
      });
    }
    if (words_) split_by_regex(pieces, *words_, SplitBehavior::kIsolated, false, scratch);
    if (map_bytes_) {
      rewrite(pieces, [&](std::string_view piece, std::string* out) {
        for (const char c : piece) *out += characters_[static_cast<unsigned char>(c)];
      });
    }
  }

 private:
  template <typename Append>
  static void rewrite(Pieces* pieces, Append append) {
    std::string text;
    text.reserve(pieces->text.size() + pieces->ranges.size());
    for (TextRange& range : pieces->ranges) {
      const size_t begin = text.size();
      append(pieces->view(range), &text);
      range = {begin, text.size()};
    }
    pieces->text = std::move(text);
  }

  std::unique_ptr<Regex> words_;
  bool prefix_space_, map_bytes_;
  std::array<std::string, 256> characters_;
};

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>* tokens) const override {
    std::string bytes;
    for (const std::string& token : *tokens) {
      if (!bytes_of_token(token, &bytes)) bytes += token;
    }
    tokens->assign(1, std::move(bytes));
  }
};

}  // namespace

std::array<std::string, 256> byte_characters() {
  std::array<std::string, 256> characters;
  for (size_t byte = 0; byte < 256; ++byte) characters[byte] = utf8_of(kCodePoints[byte]);
  return characters;
}

int byte_of_character(uint32_t code_point) { return code_point < kBytes.size() ? kBytes[code_point] : -1; }

bool bytes_of_token(std::string_view token, std::string* bytes) {
  const size_t before = bytes->size();
  for (size_t at = 0; at < token.size();) {
    const int byte = byte_of_character(next_code_point(token, &at));
    if (byte < 0) {
      bytes->resize(before);
      return false;
    }
    bytes->push_back(static_cast<char>(byte));
  }
  return true;
}

Result<std::unique_ptr<PreTokenizer>> make_byte_level_pre_tokenizer(const Json& json, bool map_bytes) {
  INVAR_ASSIGN(const bool prefix_space, flag_field(json, "add_prefix_space", true));
  INVAR_ASSIGN(const bool use_regex, flag_field(json, "use_regex", true));
  std::unique_ptr<Regex> words;
  if (use_regex) {
    INVAR_ASSIGN(Regex regex, Regex::compile(kWords));
    words = std::make_unique<Regex>(std::move(regex));
  }
  return std::unique_ptr<PreTokenizer>(new ByteLevelPreTokenizer(std::move(words), prefix_space, map_bytes));
}

std::unique_ptr<PreTokenizer> byte_level_words() {
  auto words = std::make_unique<Regex>(Regex::compile(kWords).value());  // a constant pattern: it compiles
  return std::make_unique<ByteLevelPreTokenizer>(std::move(words), false, false);
}

Result<std::unique_ptr<Decoder>> make_byte_level_decoder(const Json&) {
  return std::unique_ptr<Decoder>(new ByteLevelDecoder);
}

}  // namespace invar
