// Regular expressions as tokenizer files write them: UTF-8, Unicode classes, look-ahead. PCRE2 behind one small class.
//
//   INVAR_ASSIGN(const Regex regex, Regex::compile(R"( ?\p{L}+|\s+(?!\S))"));
//   RegexScratch scratch;
//   regex.find_all(text, scratch, &matches);
//
// Files are written for Oniguruma's Ruby syntax; what means something else there is rewritten or refused.
// Invariant: find_all() does not fail: a text that exceeds the step limit has no further match.
// Thread rule: a Regex is const after compile(); a RegexScratch belongs to one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace invar {

struct TextRange {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
  bool operator==(const TextRange&) const = default;
};

class RegexScratch {
 public:
  RegexScratch();
  RegexScratch(RegexScratch&&) noexcept;
  ~RegexScratch();

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

class Regex {
 public:
  // "tokenizer.bad_regex" names the place.
  static Result<Regex> compile(std::string_view pattern);
  Regex(Regex&&) noexcept;
  ~Regex();

  // All matches from left to right in place of what `matches` held; `text` is valid UTF-8. A match may be empty, but
  // not where the one before it ends.
  void find_all(std::string_view text, RegexScratch& scratch, std::vector<TextRange>* matches) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

// `text` with everything a regular expression reads specially escaped.
std::string escape_regex(std::string_view text);

}  // namespace invar
