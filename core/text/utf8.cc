#include "core/text/utf8.h"

namespace invar {

bool Utf8Checker::feed(std::string_view piece) {
  if (bad_offset_ >= 0) return false;
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    bool good = true;
    if (remaining_ > 0) {
      good = byte >= low_ && byte <= high_;
      low_ = 0x80;
      high_ = 0xBF;
      --remaining_;
    } else if (byte >= 0x80) {
      good = byte >= 0xC2 && byte <= 0xF4;
      remaining_ = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
      if (byte == 0xE0) low_ = 0xA0;   // no overlong form
      if (byte == 0xED) high_ = 0x9F;  // no surrogate
      if (byte == 0xF0) low_ = 0x90;
      if (byte == 0xF4) high_ = 0x8F;  // at most U+10FFFF
    }
    if (!good) {
      bad_offset_ = offset_;
      return false;
    }
    ++offset_;
  }
  return true;
}

bool Utf8Checker::finish() {
  if (bad_offset_ < 0 && remaining_ > 0) bad_offset_ = offset_;
  return bad_offset_ < 0;
}

bool valid_utf8(std::string_view text) {
  Utf8Checker checker;
  return checker.feed(text) && checker.finish();
}

std::string lossy_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    // The longest good beginning, then what is wrong behind it.
    Utf8Checker checker;
    if (checker.feed(text) && checker.finish()) {
      out += text;
      break;
    }
    const auto bad = static_cast<size_t>(checker.bad_offset());
    size_t good = bad;  // without the beginning of the character that is not finished
    for (size_t back = 1; back <= 3 && back <= bad; ++back) {
      const auto byte = static_cast<unsigned char>(text[bad - back]);
      if ((byte & 0xC0) == 0x80) continue;
      const size_t size = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
      if (size > back) good = bad - back;
      break;
    }
    out += text.substr(0, good);
    out += "\xEF\xBF\xBD";
    text.remove_prefix(good < bad ? bad : bad + 1);
  }
  return out;
}

std::string utf8_of(uint32_t code_point) {
  std::string text;
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
  return text;
}

}  // namespace invar
