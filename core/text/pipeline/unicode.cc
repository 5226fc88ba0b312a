#include "core/text/pipeline/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "core/text/utf8.h"

namespace invar {
namespace {

struct FreeMemory {
  void operator()(utf8proc_uint8_t* pointer) const { std::free(pointer); }
};

std::string mapped(std::string_view text, int options) {
  utf8proc_uint8_t* out = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  const std::unique_ptr<utf8proc_uint8_t, FreeMemory> owner(out);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (size < 0) return std::string(text);  // not valid UTF-8: left as it is
  return std::string(reinterpret_cast<const char*>(out), static_cast<size_t>(size));
}

int category(uint32_t code_point) { return utf8proc_category(static_cast<utf8proc_int32_t>(code_point)); }

// Neither changed by NFC nor joined to what stands before it.
bool nfc_inert(uint32_t code_point) {
  if (code_point < 0x300) return true;
  if (code_point >= 0x3400 && code_point <= 0x9FFF) return true;  // CJK ideographs
  if (code_point >= 0xAC00 && code_point <= 0xD7A3) return true;  // Hangul syllables
  if (code_point >= 0x1100 && code_point <= 0x11FF) return false;
  const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point));
  if (property->combining_class != 0) return false;
  if (code_point >= 0x400 && code_point <= 0x52F) return true;  // Cyrillic: every composition is in the table
  return property->decomp_seqindex == UINT16_MAX && property->comb_index == UINT16_MAX;
}

}  // namespace

bool is_ascii(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) return false;
  }
  for (; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) >= 0x80) return false;
  }
  return true;
}

bool surely_nfc(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
    } else if (!nfc_inert(next_code_point(text, &i))) {
      return false;
    }
  }
  return true;
}

std::string normalized(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  switch (form) {
    case NormalForm::kNfc: return mapped(text, UTF8PROC_COMPOSE);
    case NormalForm::kNfd: return mapped(text, UTF8PROC_DECOMPOSE);
    case NormalForm::kNfkc: return mapped(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case NormalForm::kNfkd: return mapped(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  return std::string(text);
}

std::string lowercased(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const uint32_t code_point = next_code_point(text, &i);
    if (code_point == 0x130) {  // the one character that becomes two
      out += "i\xCC\x87";
    } else {
      out += utf8_of(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))));
    }
  }
  return out;
}

std::string without_marks(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    if (category(next_code_point(text, &i)) != UTF8PROC_CATEGORY_MN) out += text.substr(begin, i - begin);
  }
  return out;
}

bool is_whitespace(uint32_t c) {
  if (c < 0x80) return c == 0x20 || (c >= 0x9 && c <= 0xD);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const int kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(uint32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !is_numeric(c) && ((c | 0x20) < 'a' || (c | 0x20) > 'z');
  const int kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_word(uint32_t c) {
  if (c < 0x80) return c == '_' || is_numeric(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  const int kind = category(c);
  return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) || kind == UTF8PROC_CATEGORY_PC ||
         c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_control(uint32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const int kind = category(c);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CN ||
         kind == UTF8PROC_CATEGORY_CO;
}

bool grapheme_break(uint32_t before, uint32_t after, int32_t* state) {
  return utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before), static_cast<utf8proc_int32_t>(after),
                                          state);
}

}  // namespace invar
