#include "core/text/pipeline/metaspace.h"

#include "core/text/pipeline/json_stage.h"
#include "core/text/pipeline/normalizer_replace.h"
#include "core/text/pipeline/split_pieces.h"

namespace invar {
namespace {

enum class Prepend { kAlways, kFirst, kNever };

struct MetaspaceOptions {
  std::string replacement;
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};

Result<MetaspaceOptions> options_of(const Json& json) {
  MetaspaceOptions options;
  INVAR_ASSIGN(options.replacement, text_field(json, "replacement", "\xE2\x96\x81"));
  if (options.replacement.empty()) return bad_stage("Metaspace", "\"replacement\" is empty");
  INVAR_ASSIGN(options.split, flag_field(json, "split", true));
  // Older files say add_prefix_space, true or false.
  INVAR_ASSIGN(const bool prefix, flag_field(json, "add_prefix_space", true));
  INVAR_ASSIGN(const std::string scheme, text_field(json, "prepend_scheme", prefix ? "always" : "never"));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return unsupported_stage("Metaspace: prepend_scheme", scheme, "always, first, never");
  }
  options.prepend = scheme == "always" ? Prepend::kAlways : scheme == "first" ? Prepend::kFirst : Prepend::kNever;
  return options;
}

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(MetaspaceOptions options) : options_(std::move(options)) {}

  void apply(Pieces* pieces, Scratch&) const override {
    std::string text;
    std::vector<TextRange> cut;
    for (size_t i = 0; i < pieces->ranges.size(); ++i) {
      const std::string piece = replaced(pieces->view(pieces->ranges[i]), " ", options_.replacement);
      const size_t begin = text.size();
      const bool first = pieces->begins_input && i == 0;
      if ((options_.prepend == Prepend::kAlways || (options_.prepend == Prepend::kFirst && first)) &&
          !piece.starts_with(options_.replacement)) {
        text += options_.replacement;
      }
      text += piece;
      if (options_.split) {
        split(text, begin, &cut);
      } else {
        cut.push_back({begin, text.size()});
      }
    }
    pieces->text = std::move(text);
    pieces->ranges = std::move(cut);
  }

 private:
  // Cuts before each replacement.
  void split(std::string_view text, size_t begin, std::vector<TextRange>* cut) const {
    while (begin < text.size()) {
      const size_t skip = text.substr(begin).starts_with(options_.replacement) ? options_.replacement.size() : 0;
      const size_t end = std::min(text.find(options_.replacement, begin + skip), text.size());
      cut->push_back({begin, end});
      begin = end;
    }
  }

  MetaspaceOptions options_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  explicit MetaspaceDecoder(MetaspaceOptions options) : options_(std::move(options)) {}

  void apply(std::vector<std::string>* tokens) const override {
    for (size_t i = 0; i < tokens->size(); ++i) {
      std::string& token = (*tokens)[i];
      const bool drops_first = i == 0 && options_.prepend != Prepend::kNever;
      std::string text;
      for (size_t at = 0; at < token.size();) {
        if (std::string_view(token).substr(at).starts_with(options_.replacement)) {
          if (!drops_first) text += ' ';
          at += options_.replacement.size();
        } else {
          text += token[at++];
        }
      }
      token = std::move(text);
    }
  }

 private:
  MetaspaceOptions options_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> make_metaspace_pre_tokenizer(const Json& json) {
  INVAR_ASSIGN(MetaspaceOptions options, options_of(json));
  return std::unique_ptr<PreTokenizer>(new MetaspacePreTokenizer(std::move(options)));
}

Result<std::unique_ptr<Decoder>> make_metaspace_decoder(const Json& json) {
  INVAR_ASSIGN(MetaspaceOptions options, options_of(json));
  return std::unique_ptr<Decoder>(new MetaspaceDecoder(std::move(options)));
}

}  // namespace invar
