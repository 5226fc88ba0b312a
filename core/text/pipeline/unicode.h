// Unicode as tokenizers need it: normal forms, case, and the classes of a character. Tables are utf8proc's.
// All texts are valid UTF-8. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace invar {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

std::string normalized(std::string_view text, NormalForm form);
// True when normalized(text, kNfc) == text, found without normalising; false says nothing.
bool surely_nfc(std::string_view text);
std::string lowercased(std::string_view text);
// Without characters of category Mn.
std::string without_marks(std::string_view text);

bool is_ascii(std::string_view text);
bool is_whitespace(uint32_t code_point);   // White_Space
bool is_numeric(uint32_t code_point);      // Nd, Nl, No
bool is_punctuation(uint32_t code_point);  // Pc to Po, and all ASCII punctuation and symbols
bool is_word(uint32_t code_point);         // letters, marks, digits, connectors
bool is_control(uint32_t code_point);      // Cc, Cf, Cn, Co, but not tab, line feed and carriage return
// User-perceived characters begin where this tells so; `state` is 0 for the first pair (Unicode annex 29).
bool grapheme_break(uint32_t before, uint32_t after, int32_t* state);

// The character at *at, which then points behind it.
inline uint32_t next_code_point(std::string_view text, size_t* at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(*at);
  const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (*at + size > text.size()) {  // not valid UTF-8: never read past the end
    *at = text.size();
    return 0xFFFD;
  }
  uint32_t value = size == 1 ? lead : lead & (0xFFu >> (size + 1));
  for (size_t i = 1; i < size; ++i) value = value << 6 | (byte(*at + i) & 0x3F);
  *at += size;
  return value;
}

// The character that ends at `at` (> 0).
inline uint32_t code_point_before(std::string_view text, size_t at) {
  size_t begin = at - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return next_code_point(text, &begin);
}

}  // namespace invar
