#include "core/text/pipeline/added_tokens.h"

#include <algorithm>

#include "core/text/pipeline/json_stage.h"
#include "core/text/pipeline/unicode.h"

namespace invar {
namespace {

// Where the spaces at the end of text[0, end) begin, and where those at the beginning of text[begin, ..) end.
size_t spaces_before(std::string_view text, size_t end) {
  while (end > 0 && is_whitespace(code_point_before(text, end))) {
    do --end;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  }
  return end;
}

size_t spaces_after(std::string_view text, size_t begin) {
  for (size_t at = begin; at < text.size() && is_whitespace(next_code_point(text, &at));) begin = at;
  return begin;
}

bool inside_word(std::string_view text, const TextRange& range) {
  if (range.begin > 0 && is_word(code_point_before(text, range.begin))) return true;
  size_t at = range.end;
  return at < text.size() && is_word(next_code_point(text, &at));
}

}  // namespace

Result<std::vector<AddedToken>> AddedTokens::parse(const Json& list) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  if (!list.is_array()) return bad_stage("added_tokens", "not a list");
  for (const Json& json : list) {
    if (!json.is_object()) return bad_stage("added_tokens", "holds what is no object");
    AddedToken token;
    INVAR_ASSIGN(const int64_t id, number_field(json, "id", -1));
    if (id < 0 || id >= INT32_MAX) return bad_stage("added_tokens", cat("id ", id, " is missing or not possible"));
    token.id = static_cast<int32_t>(id);
    INVAR_ASSIGN(token.content, text_field(json, "content", ""));
    INVAR_ASSIGN(token.special, flag_field(json, "special", false));
    INVAR_ASSIGN(token.normalized, flag_field(json, "normalized", !token.special));
    INVAR_ASSIGN(token.single_word, flag_field(json, "single_word", false));
    INVAR_ASSIGN(token.lstrip, flag_field(json, "lstrip", false));
    INVAR_ASSIGN(token.rstrip, flag_field(json, "rstrip", false));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer) : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string, int32_t>> keys[2];
  Scratch scratch;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    by_id_.emplace(tokens_[i].id, i);
    std::string key = tokens_[i].content;
    if (tokens_[i].normalized && normalizer != nullptr) normalizer->apply(&key, scratch);
    if (!key.empty()) keys[tokens_[i].normalized ? 1 : 0].emplace_back(std::move(key), static_cast<int32_t>(i));
  }
  for (int kind = 0; kind < 2; ++kind) tries_[kind] = ByteTrie::build(std::move(keys[kind]));
}

std::vector<TextStretch> AddedTokens::split(std::string_view text, bool normalized, bool parse_special) const {
  const ByteTrie& trie = tries_[normalized ? 1 : 0];
  std::vector<TextStretch> stretches;
  size_t done = 0;
  for (size_t at = 0; !trie.empty() && at < text.size(); ++at) {
    if (!trie.begins_with(text[at])) continue;
    TextRange range{at, 0};
    int32_t found = -1;
    size_t node = 0;
    for (size_t i = at; i < text.size() && (node = trie.child(node, text[i])) != 0; ++i) {
      if (trie.value(node) < 0) continue;
      found = trie.value(node);
      range.end = i + 1;
    }
    if (found < 0) continue;
    at = range.end - 1;  // what is not taken is not looked at again
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    if (token.special && !parse_special) continue;
    if (token.single_word && inside_word(text, range)) continue;
    if (token.lstrip) range.begin = std::max(spaces_before(text, range.begin), done);
    if (token.rstrip) range.end = spaces_after(text, range.end);
    if (range.begin > done) stretches.push_back({{done, range.begin}, -1});
    stretches.push_back({range, token.id});
    done = range.end;
    at = std::max(at, done - 1);
  }
  if (done < text.size()) stretches.push_back({{done, text.size()}, -1});
  return stretches;
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

int32_t AddedTokens::id_of(std::string_view content) const {
  for (const AddedToken& token : tokens_) {
    if (token.content == content) return token.id;
  }
  return -1;
}

}  // namespace invar
