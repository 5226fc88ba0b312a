// The table of normalizers and the plain ones. Replace and Precompiled have files of their own.
#include <algorithm>

#include "core/text/pipeline/json_stage.h"
#include "core/text/pipeline/normalizer_precompiled.h"
#include "core/text/pipeline/normalizer_replace.h"
#include "core/text/pipeline/unicode.h"

namespace invar {
namespace {

using NormalizerResult = Result<std::unique_ptr<Normalizer>>;

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> stages) : stages_(std::move(stages)) {}
  void apply(std::string* text, Scratch& scratch) const override {
    for (const auto& stage : stages_) stage->apply(text, scratch);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> stages_;
};

template <NormalForm form>
class UnicodeNormalizer final : public Normalizer {
 public:
  static NormalizerResult make(const Json&) { return std::unique_ptr<Normalizer>(new UnicodeNormalizer); }
  void apply(std::string* text, Scratch&) const override {
    if (form == NormalForm::kNfc && surely_nfc(*text)) return;
    *text = normalized(*text, form);
  }
};

// A function from text to text.
template <std::string (*function)(std::string_view)>
class FunctionNormalizer final : public Normalizer {
 public:
  static NormalizerResult make(const Json&) { return std::unique_ptr<Normalizer>(new FunctionNormalizer); }
  void apply(std::string* text, Scratch&) const override { *text = function(*text); }
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  static NormalizerResult make(const Json& json) {
    INVAR_ASSIGN(const bool left, flag_field(json, "strip_left", true));
    INVAR_ASSIGN(const bool right, flag_field(json, "strip_right", true));
    return std::unique_ptr<Normalizer>(new StripNormalizer(left, right));
  }
  void apply(std::string* text, Scratch&) const override {
    size_t begin = 0, end = text->size();
    for (size_t at = 0; left_ && at < end && is_whitespace(next_code_point(*text, &at));) begin = at;
    while (right_ && end > begin && is_whitespace(code_point_before(*text, end))) {
      do --end;
      while ((static_cast<unsigned char>((*text)[end]) & 0xC0) == 0x80);
    }
    *text = text->substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  static NormalizerResult make(const Json& json) {
    INVAR_ASSIGN(std::string prefix, text_field(json, "prepend", ""));
    return std::unique_ptr<Normalizer>(new PrependNormalizer(std::move(prefix)));
  }
  void apply(std::string* text, Scratch&) const override {
    if (!text->empty()) text->insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

// SentencePiece's nmt rule: controls and zero-width characters go, other spaces become a space.
std::string nmt(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t c = next_code_point(text, &i);
    const bool dropped =
        (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
    const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
                       c == 0xFFFD;
    if (space) out += ' ';
    if (!space && !dropped) out += text.substr(begin, i - begin);
  }
  return out;
}

constexpr StageKind<Normalizer> kKinds[] = {
    {"NFC", UnicodeNormalizer<NormalForm::kNfc>::make},
    {"NFD", UnicodeNormalizer<NormalForm::kNfd>::make},
    {"NFKC", UnicodeNormalizer<NormalForm::kNfkc>::make},
    {"NFKD", UnicodeNormalizer<NormalForm::kNfkd>::make},
    {"Lowercase", FunctionNormalizer<lowercased>::make},
    {"StripAccents", FunctionNormalizer<without_marks>::make},
    {"Nmt", FunctionNormalizer<nmt>::make},
    {"Strip", StripNormalizer::make},
    {"Prepend", PrependNormalizer::make},
    {"Replace", make_replace_normalizer},
    {"Precompiled", make_precompiled_normalizer},
};

}  // namespace

NormalizerResult make_normalizer(const Json& json) {
  if (json.is_null()) return std::unique_ptr<Normalizer>();
  if (stage_type(json) != "Sequence") return make_by_kind("normalizer", json, kKinds);
  std::vector<std::unique_ptr<Normalizer>> stages;
  INVAR_TRY(for_each_stage(json, "normalizers", [&](const Json& stage) -> Status {
    INVAR_ASSIGN(auto made, make_normalizer(stage));
    if (made) stages.push_back(std::move(made));
    return {};
  }));
  return std::unique_ptr<Normalizer>(new SequenceNormalizer(std::move(stages)));
}

}  // namespace invar
