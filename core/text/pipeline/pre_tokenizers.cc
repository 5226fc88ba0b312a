// The table of pre-tokenizers and the plain ones. ByteLevel and Metaspace have files of their own.
#include <utility>

#include "core/text/pipeline/byte_level.h"
#include "core/text/pipeline/json_stage.h"
#include "core/text/pipeline/metaspace.h"
#include "core/text/pipeline/split_pieces.h"
#include "core/text/pipeline/unicode.h"

namespace invar {
namespace {

using PreTokenizerResult = Result<std::unique_ptr<PreTokenizer>>;

class SequencePreTokenizer final : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> stages) : stages_(std::move(stages)) {}
  void apply(Pieces* pieces, Scratch& scratch) const override {
    for (const auto& stage : stages_) stage->apply(pieces, scratch);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> stages_;
};

class RegexSplit final : public PreTokenizer {
 public:
  RegexSplit(Regex regex, SplitBehavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  static PreTokenizerResult make(const Json& json) {
    INVAR_ASSIGN(Regex regex, pattern_field(json));
    INVAR_ASSIGN(const SplitBehavior behavior, split_behavior(json));
    INVAR_ASSIGN(const bool invert, flag_field(json, "invert", false));
    return std::unique_ptr<PreTokenizer>(new RegexSplit(std::move(regex), behavior, invert));
  }
  // Words and runs of other characters that are no space.
  static PreTokenizerResult make_whitespace(const Json&) {
    INVAR_ASSIGN(Regex regex, Regex::compile(R"(\w+|[^\w\s]+)"));
    return std::unique_ptr<PreTokenizer>(new RegexSplit(std::move(regex), SplitBehavior::kRemoved, true));
  }
  static PreTokenizerResult make_delimiter(const Json& json) {
    INVAR_ASSIGN(const std::string delimiter, text_field(json, "delimiter", ""));
    INVAR_ASSIGN(Regex regex, Regex::compile(escape_regex(delimiter)));
    return std::unique_ptr<PreTokenizer>(new RegexSplit(std::move(regex), SplitBehavior::kRemoved, false));
  }
  void apply(Pieces* pieces, Scratch& scratch) const override {
    split_by_regex(pieces, regex_, behavior_, invert_, scratch);
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
};

class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(bool (*is_match)(uint32_t), SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}
  static PreTokenizerResult make_digits(const Json& json) {
    INVAR_ASSIGN(const bool individual, flag_field(json, "individual_digits", false));
    const auto behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    return std::unique_ptr<PreTokenizer>(new CharacterSplit(is_numeric, behavior));
  }
  static PreTokenizerResult make_punctuation(const Json& json) {
    INVAR_ASSIGN(const SplitBehavior behavior, split_behavior(json));
    return std::unique_ptr<PreTokenizer>(new CharacterSplit(is_punctuation, behavior));
  }
  static PreTokenizerResult make_whitespace(const Json&) {
    return std::unique_ptr<PreTokenizer>(new CharacterSplit(is_whitespace, SplitBehavior::kRemoved));
  }
  void apply(Pieces* pieces, Scratch& scratch) const override {
    split_by_character(pieces, is_match_, behavior_, scratch);
  }

 private:
  bool (*is_match_)(uint32_t);
  SplitBehavior behavior_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(int64_t length) : length_(length) {}
  static PreTokenizerResult make(const Json& json) {
    INVAR_ASSIGN(const int64_t length, number_field(json, "length", 5));
    if (length < 1) return bad_stage("FixedLength", cat("\"length\" is ", length));
    return std::unique_ptr<PreTokenizer>(new FixedLength(length));
  }
  void apply(Pieces* pieces, Scratch&) const override {
    std::vector<TextRange> cut;
    for (const TextRange& range : pieces->ranges) {
      for (size_t at = range.begin; at < range.end;) {
        const size_t begin = at;
        for (int64_t i = 0; i < length_ && at < range.end; ++i) next_code_point(pieces->text, &at);
        cut.push_back({begin, at});
      }
    }
    pieces->ranges = std::move(cut);
  }

 private:
  int64_t length_;
};

constexpr StageKind<PreTokenizer> kKinds[] = {
    {"Metaspace", make_metaspace_pre_tokenizer},
    {"Split", RegexSplit::make},
    {"Digits", CharacterSplit::make_digits},
    {"Punctuation", CharacterSplit::make_punctuation},
    {"Whitespace", RegexSplit::make_whitespace},
    {"WhitespaceSplit", CharacterSplit::make_whitespace},
    {"CharDelimiterSplit", RegexSplit::make_delimiter},
    {"FixedLength", FixedLength::make},
    {"ByteLevel", [](const Json& json) { return make_byte_level_pre_tokenizer(json, true); }},
};

}  // namespace

PreTokenizerResult make_pre_tokenizer(const Json& json, bool map_bytes) {
  if (json.is_null()) return std::unique_ptr<PreTokenizer>();
  if (stage_type(json) == "ByteLevel") return make_byte_level_pre_tokenizer(json, map_bytes);
  if (stage_type(json) != "Sequence") return make_by_kind("pre-tokenizer", json, kKinds);
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  INVAR_TRY(for_each_stage(json, "pretokenizers", [&](const Json& stage) -> Status {
    INVAR_ASSIGN(auto made, make_pre_tokenizer(stage, map_bytes));
    if (made) stages.push_back(std::move(made));
    return {};
  }));
  return std::unique_ptr<PreTokenizer>(new SequencePreTokenizer(std::move(stages)));
}

}  // namespace invar
