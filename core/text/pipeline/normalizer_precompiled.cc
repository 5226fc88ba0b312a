#include "core/text/pipeline/normalizer_precompiled.h"

#include <cstring>
#include <optional>

#include "core/text/pipeline/json_stage.h"
#include "core/text/pipeline/unicode.h"

namespace invar {
namespace {

// The units of a Darts-clone double array (Yata et al.): bit 31 marks a value, bits 10 to 30 the offset, bit 9 its
// scale, bit 8 that a value follows, bits 0 to 7 the label.
class PrecompiledNormalizer final : public Normalizer {
 public:
  PrecompiledNormalizer(std::vector<uint32_t> units, std::string replacements, bool whole_prefix)
      : units_(std::move(units)), replacements_(std::move(replacements)), whole_prefix_(whole_prefix) {}

  void apply(std::string* text, Scratch&) const override {
    std::string out;
    out.reserve(text->size());
    if (whole_prefix_) {
      apply_prefixes(*text, &out);
    } else {
      apply_graphemes(*text, &out);
    }
    *text = std::move(out);
  }

 private:
  struct Entry {
    size_t bytes;  // of the key
    std::string_view replacement;
  };

  // The shortest or longest key that `text` begins with.
  std::optional<Entry> lookup(std::string_view text, bool longest) const {
    std::optional<Entry> found;
    size_t at = 0;
    uint32_t unit = units_.empty() ? 0 : units_[0];
    at ^= offset(unit);
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      if (byte == 0) break;
      at ^= byte;
      if (at >= units_.size()) break;
      unit = units_[at];
      if ((unit & 0x800000FFu) != byte) break;
      at ^= offset(unit);
      if ((unit >> 8 & 1) == 1 && at < units_.size()) {
        const uint32_t value = units_[at] & 0x7FFFFFFFu;
        if (value < replacements_.size()) {
          found = Entry{i + 1, std::string_view(replacements_.c_str() + value)};
          if (!longest) return found;
        }
      }
    }
    return found;
  }

  static size_t offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & (1u << 9)) >> 6); }

  void apply_prefixes(std::string_view text, std::string* out) const {
    for (size_t i = 0; i < text.size();) {
      if (const auto entry = lookup(text.substr(i), true)) {
        *out += entry->replacement;
        i += entry->bytes;
        continue;
      }
      const size_t begin = i;
      next_code_point(text, &i);
      *out += text.substr(begin, i - begin);
    }
  }

  void apply_graphemes(std::string_view text, std::string* out) const {
    for (size_t begin = 0; begin < text.size();) {
      size_t end = begin;
      uint32_t last = next_code_point(text, &end);
      int32_t state = 0;
      while (end < text.size()) {
        size_t next = end;
        const uint32_t code_point = next_code_point(text, &next);
        if (grapheme_break(last, code_point, &state)) break;
        last = code_point;
        end = next;
      }
      const std::string_view grapheme = text.substr(begin, end - begin);
      const auto whole = grapheme.size() < 6 ? lookup(grapheme, false) : std::nullopt;
      if (whole) {
        *out += whole->replacement;
      } else {
        for (size_t i = 0; i < grapheme.size();) {
          const size_t from = i;
          next_code_point(grapheme, &i);
          const std::string_view character = grapheme.substr(from, i - from);
          const auto entry = lookup(character, false);
          *out += entry ? entry->replacement : character;
        }
      }
      begin = end;
    }
  }

  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends in a zero byte
  bool whole_prefix_;
};

Result<std::string> decode_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) return bad_stage("Precompiled", "\"precompiled_charsmap\" is not base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((count += 6) >= 8) out.push_back(static_cast<char>(bits >> (count -= 8)));
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<Normalizer>> make_precompiled_normalizer(const Json& json) {
  INVAR_ASSIGN(const std::string text, text_field(json, "precompiled_charsmap", ""));
  INVAR_ASSIGN(std::string bytes, decode_base64(text));
  return make_precompiled_normalizer(std::move(bytes), false);
}

Result<std::unique_ptr<Normalizer>> make_precompiled_normalizer(std::string bytes, bool whole_prefix) {
  std::vector<uint32_t> units;
  std::string replacements;
  if (!bytes.empty()) {
    uint32_t size = 0;
    if (bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
    if (bytes.size() < 4 || size > bytes.size() - 4 || size % 4 != 0) {
      return bad_stage("Precompiled", cat("the character map of ", bytes.size(), " bytes has a trie of ", size));
    }
    units.resize(size / 4);
    if (size > 0) std::memcpy(units.data(), bytes.data() + 4, size);
    replacements = bytes.substr(4 + size);
  }
  return std::unique_ptr<Normalizer>(
      new PrecompiledNormalizer(std::move(units), std::move(replacements), whole_prefix));
}

}  // namespace invar
