// UTF-8 as text files need it: well-formedness over pieces, and single characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace invar {

// Checks a text that arrives in pieces, cut anywhere. Rejects overlong forms, surrogates and values above U+10FFFF
// (Unicode 15, table 3-7).
class Utf8Checker {
 public:
  // False at the first malformed byte; bad_offset() then counts from the first byte ever fed.
  bool feed(std::string_view piece);
  // False when the text ended inside a character.
  bool finish();
  int64_t bad_offset() const { return bad_offset_; }

 private:
  int64_t offset_ = 0;
  int64_t bad_offset_ = -1;
  int remaining_ = 0;                       // continuation bytes still due
  unsigned char low_ = 0x80, high_ = 0xBF;  // bounds of the next one
};

bool valid_utf8(std::string_view text);
// Valid UTF-8: every sequence that begins a character and does not finish it becomes one U+FFFD, and so does every byte
// that begins none (Unicode 15, 3.9, maximal subparts).
std::string lossy_utf8(std::string_view text);

// A code point below 0x110000 as UTF-8.
std::string utf8_of(uint32_t code_point);

}  // namespace invar
