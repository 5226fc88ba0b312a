#include "core/text/pipeline/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

namespace invar {
namespace {

// Steps of one match: far above what real patterns need, a second at most for a hostile one.
constexpr uint32_t kMatchLimit = 10'000'000;
// U+180E is white space to PCRE2 and not to Unicode since 6.3, nor to Oniguruma.
constexpr std::string_view kVowelSeparator = "\xE1\xA0\x8E";
constexpr std::string_view kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kWord = "\\p{L}\\p{M}\\p{Nd}\\p{Pc}";

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using CodePointer = std::unique_ptr<pcre2_code, FreeCode>;

// The pattern in PCRE2's words. exact_spaces: \s written out, for texts that hold the character named above.
std::string translate(std::string_view pattern, bool exact_spaces) {
  std::string out;
  int in_class = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      std::string_view set;
      if (next == 'w' || next == 'W') set = kWord;
      if (exact_spaces && (next == 's' || next == 'S')) set = kSpaces;
      if (next == 'h' || next == 'H') set = "0-9a-fA-F";
      const bool negated = next == 'W' || next == 'S' || next == 'H';
      if (!set.empty() && !(negated && in_class > 0)) {
        out += in_class > 0 ? std::string(set) : cat(negated ? "[^" : "[", set, "]");
      } else {
        out += c;
        out += next;
      }
      continue;
    }
    if (c == '[') ++in_class;
    if (c == ']' && in_class > 0) --in_class;
    out += c;
  }
  return out;
}

// Whether a count such as {1,3} is followed by a plus: PCRE2 would read it as possessive, Oniguruma repeats it.
bool repeats_count(std::string_view pattern) {
  for (size_t end = 0; (end = pattern.find("}+", end)) != std::string_view::npos; ++end) {
    const size_t begin = pattern.rfind('{', end);
    if (begin == std::string_view::npos || pattern.find_first_not_of("0123456789,", begin + 1) != end) continue;
    if (begin < 2 || pattern[begin - 2] != '\\') return true;  // not \x{41}
  }
  return false;
}

Result<CodePointer> compile_one(const std::string& pattern) {
  int error = 0;
  size_t offset = 0;
  CodePointer code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                 nullptr));
  if (code == nullptr) {
    char message[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    return Error(Code::kUnimplemented, "tokenizer.bad_regex",
                 cat("regular expression \"", pattern, "\": ", message, " at byte ", offset));
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without it the interpreter does the same work
  return code;
}

}  // namespace

struct RegexScratch::State {
  State() : data(pcre2_match_data_create(1, nullptr)), context(pcre2_match_context_create(nullptr)) {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_set_match_limit(context, kMatchLimit);
  }
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  pcre2_match_data* data;
  pcre2_match_context* context;
};

RegexScratch::RegexScratch() : state_(std::make_unique<State>()) {}
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch::~RegexScratch() = default;

struct Regex::Code {
  CodePointer usual, exact;
  bool jit = false;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  if (repeats_count(pattern)) {
    return Error(invar::Code::kUnimplemented, "tokenizer.unsupported",
                 cat("regular expression \"", pattern, "\": a repeated count, {..}+, is not supported"));
  }
  auto code = std::make_unique<Code>();
  INVAR_ASSIGN(code->usual, compile_one(translate(pattern, false)));
  INVAR_ASSIGN(code->exact, compile_one(translate(pattern, true)));
  size_t jit_size = 0;
  code->jit = pcre2_pattern_info(code->usual.get(), PCRE2_INFO_JITSIZE, &jit_size) == 0 && jit_size > 0;
  return Regex(std::move(code));
}

void Regex::find_all(std::string_view text, RegexScratch& scratch, std::vector<TextRange>* matches) const {
  matches->clear();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const bool exact = text.find(kVowelSeparator) != std::string_view::npos;
  const pcre2_code* code = exact ? code_->exact.get() : code_->usual.get();
  auto& state = *scratch.state_;
  const size_t* ends = pcre2_get_ovector_pointer(state.data);
  for (size_t at = 0; at <= text.size();) {
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code_->jit) {
      found = pcre2_jit_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, state.data, state.context);
    }
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data, state.context);
    }
    if (found < 0 || ends[1] < ends[0]) return;  // the second: \K in a look-ahead
    const TextRange match{ends[0], ends[1]};
    if (match.size() == 0 && !matches->empty() && matches->back().end == match.end) {
      do ++at;  // to the next character
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
      continue;
    }
    matches->push_back(match);
    at = match.end;
  }
}

std::string escape_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\^$.[]|()?*+{}-#&~ \t\n\r").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace invar
