#include "core/text/pipeline/normalizer_replace.h"

#include "core/text/pipeline/json_stage.h"

namespace invar {
namespace {

class TextReplacer final : public Normalizer {
 public:
  TextReplacer(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(std::string* text, Scratch&) const override {
    if (text->find(from_) != std::string::npos) *text = replaced(*text, from_, to_);
  }

 private:
  std::string from_, to_;
};

class RegexReplacer final : public Normalizer {
 public:
  RegexReplacer(Regex regex, std::string to) : regex_(std::move(regex)), to_(std::move(to)) {}
  void apply(std::string* text, Scratch& scratch) const override {
    regex_.find_all(*text, scratch.regex, &scratch.matches);
    if (scratch.matches.empty()) return;
    std::string out;
    size_t done = 0;
    for (const TextRange& match : scratch.matches) {
      out.append(*text, done, match.begin - done);
      out += to_;
      done = match.end;
    }
    out.append(*text, done);
    *text = std::move(out);
  }

 private:
  Regex regex_;
  std::string to_;
};

}  // namespace

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  size_t done = 0;
  for (size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string_view::npos; done = at) {
    out += text.substr(done, at - done);
    out += to;
    at += from.size();
  }
  out += text.substr(done);
  return out;
}

Result<std::unique_ptr<Normalizer>> make_replace_normalizer(const Json& json) {
  INVAR_ASSIGN(std::string to, text_field(json, "content", ""));
  const auto pattern = json.find("pattern");
  if (pattern != json.end() && pattern->is_object() && pattern->contains("String")) {
    INVAR_ASSIGN(std::string from, text_field(*pattern, "String", ""));
    return std::unique_ptr<Normalizer>(new TextReplacer(std::move(from), std::move(to)));
  }
  INVAR_ASSIGN(Regex regex, pattern_field(json));
  return std::unique_ptr<Normalizer>(new RegexReplacer(std::move(regex), std::move(to)));
}

}  // namespace invar
