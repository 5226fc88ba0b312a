#include "core/text/pipeline/model_bpe.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/text/pipeline/byte_level.h"
#include "core/text/pipeline/json_stage.h"
#include "core/text/pipeline/merge_symbols.h"
#include "core/text/pipeline/unicode.h"

namespace invar {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr uint32_t kSpaceMarkCode = 0x2581;

std::string byte_token(unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return cat("<0x", kDigits[byte >> 4], kDigits[byte & 15], ">");
}

}  // namespace

BpeModel::BpeModel(TokenTable tokens, const std::vector<Merge>& merges, const BpeOptions& options)
    : tokens_(std::move(tokens)), options_(options) {
  pairs_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    pairs_.set(merges[rank].left, merges[rank].right, static_cast<uint32_t>(rank), merges[rank].merged);
  }
  if (options_.reads_bytes) {
    const auto characters = byte_characters();
    for (size_t byte = 0; byte < 256; ++byte) byte_ids_[byte] = tokens_.id_of(characters[byte]);
    if (options_.ignore_merges) {
      bytes_to_ids_ = TokenTable(tokens_.size());
      std::string bytes;
      for (int32_t id = 0; id < tokens_.size(); ++id) {
        bytes.clear();
        if (tokens_.has(id) && bytes_of_token(tokens_.token_of(id), &bytes)) bytes_to_ids_.set(id, bytes);
      }
      bytes_to_ids_.finish();
    }
    return;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = options_.byte_fallback ? tokens_.id_of(byte_token(static_cast<unsigned char>(byte))) : -1;
  }
  character_ids_.assign(0x10000, -1);
  for (int32_t id = 0; id < tokens_.size(); ++id) {
    const std::string_view token = tokens_.token_of(id);
    size_t at = 0;
    if (token.empty()) continue;
    const uint32_t code_point = next_code_point(token, &at);
    if (at == token.size() && code_point < 0x10000) character_ids_[code_point] = tokens_.id_of(token);
  }
  find_word_starts();
}

void BpeModel::find_word_starts() {
  joins_mark_.assign(0x110000, false);
  joins_mark_[kSpaceMarkCode] = true;
  for (int32_t id = 0; id < tokens_.size(); ++id) {
    const std::string_view token = tokens_.token_of(id);
    for (size_t at = 0; (at = token.find(kSpaceMark, at)) != std::string_view::npos; at += kSpaceMark.size()) {
      if (at > 0) joins_mark_[std::min(code_point_before(token, at), 0x10FFFFu)] = true;
    }
  }
  cuts_words_ = tokens_.id_of(kSpaceMark) >= 0;
}

void BpeModel::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>* ids) const {
  if (options_.ignore_merges) {
    const int32_t id = (options_.reads_bytes ? bytes_to_ids_ : tokens_).id_of(piece);
    if (id >= 0) {
      ids->push_back(id);
      return;
    }
  }
  if (options_.reads_bytes || !cuts_words_) {
    encode_word(piece, scratch, ids);
    return;
  }
  // A piece may be a whole text. Where no token reaches across a place, words on both sides are independent.
  size_t begin = 0;
  for (size_t at = 1; (at = piece.find(kSpaceMark, at)) != std::string_view::npos; at += kSpaceMark.size()) {
    if (joins_mark_[std::min(code_point_before(piece, at), 0x10FFFFu)]) continue;
    encode_word(piece.substr(begin, at - begin), scratch, ids);
    begin = at;
  }
  if (begin < piece.size()) encode_word(piece.substr(begin), scratch, ids);
}

void BpeModel::encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>* ids) const {
  if (scratch.words.find(word, ids)) return;
  std::vector<int32_t>& symbols = scratch.symbols;
  symbols.clear();
  symbols_of(word, &symbols);
  merge_symbols(pairs_, &symbols);
  scratch.words.store(word, symbols);
  ids->insert(ids->end(), symbols.begin(), symbols.end());
}

int32_t BpeModel::id_of_character(std::string_view character, uint32_t code_point) const {
  return code_point < character_ids_.size() ? character_ids_[code_point] : tokens_.id_of(character);
}

void BpeModel::symbols_of(std::string_view word, std::vector<int32_t>* symbols) const {
  if (options_.reads_bytes) {
    for (const char c : word) {
      const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
      if (id >= 0) symbols->push_back(id);
    }
    return;
  }
  bool unknown = false;  // one is due
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    const uint32_t code_point = next_code_point(word, &at);
    const std::string_view character = word.substr(begin, at - begin);
    if (const int32_t id = id_of_character(character, code_point); id >= 0) {
      if (std::exchange(unknown, false)) symbols->push_back(options_.unknown);
      symbols->push_back(id);
      continue;
    }
    const bool all_bytes = std::all_of(character.begin(), character.end(),
                                       [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; });
    if (all_bytes) {
      for (const char c : character) symbols->push_back(byte_ids_[static_cast<unsigned char>(c)]);
      continue;
    }
    if (options_.unknown < 0) continue;
    if (unknown && !options_.fuse_unknown) symbols->push_back(options_.unknown);
    unknown = true;
  }
  if (unknown) symbols->push_back(options_.unknown);
}

namespace {

// Ids and tokens of "vocab".
Result<TokenTable> read_vocabulary(const Json& json) {
  const auto vocab = json.find("vocab");
  if (vocab == json.end() || !vocab->is_object()) return bad_stage("BPE", "\"vocab\" is missing or no object");
  int64_t highest = -1;
  for (const auto& [token, id] : vocab->items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX)
      return bad_stage("BPE", cat("token \"", token, "\" has no id"));
    highest = std::max(highest, id.get<int64_t>());
  }
  // Ids far apart are no vocabulary; memory is not taken from a claim.
  if (highest >= static_cast<int64_t>(vocab->size()) * 4 + 65536) {
    return bad_stage("BPE", cat("id ", highest, " in a vocabulary of ", vocab->size(), " tokens"));
  }
  TokenTable tokens(static_cast<int32_t>(highest + 1));
  for (const auto& [token, id] : vocab->items()) {
    if (tokens.has(id.get<int32_t>())) return bad_stage("BPE", cat("id ", id.get<int32_t>(), " has two tokens"));
    tokens.set(id.get<int32_t>(), token);
  }
  tokens.finish();
  return tokens;
}

// ["a", "b"] or "a b".
bool read_pair(const Json& merge, std::string_view* left, std::string_view* right) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    *left = merge[0].get_ref<const std::string&>();
    *right = merge[1].get_ref<const std::string&>();
    return true;
  }
  if (!merge.is_string()) return false;
  const std::string_view both = merge.get_ref<const std::string&>();
  const size_t space = both.find(' ');
  if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) return false;
  *left = both.substr(0, space);
  *right = both.substr(space + 1);
  return true;
}

}  // namespace

Result<std::unique_ptr<TokenModel>> make_bpe_model(const Json& json, bool reads_bytes) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    INVAR_ASSIGN(const std::string value, text_field(json, key, ""));
    if (!value.empty()) return unsupported_stage(cat("BPE: ", key), value, "none");
  }
  if (const auto dropout = json.find("dropout"); dropout != json.end() && !dropout->is_null() && *dropout != 0) {
    return unsupported_stage("BPE: dropout", dropout->dump(), "none: encoding is not random");
  }
  BpeOptions options;
  options.reads_bytes = reads_bytes;
  INVAR_ASSIGN(options.byte_fallback, flag_field(json, "byte_fallback", false));
  INVAR_ASSIGN(options.fuse_unknown, flag_field(json, "fuse_unk", false));
  INVAR_ASSIGN(options.ignore_merges, flag_field(json, "ignore_merges", false));
  INVAR_ASSIGN(TokenTable tokens, read_vocabulary(json));
  INVAR_ASSIGN(const std::string unknown, text_field(json, "unk_token", ""));
  if (!unknown.empty()) options.unknown = tokens.id_of(unknown);
  const auto list = json.find("merges");
  if (list == json.end() || !list->is_array()) return bad_stage("BPE", "\"merges\" is missing or no list");
  std::vector<BpeModel::Merge> merges;
  merges.reserve(list->size());
  std::string joined;
  for (const Json& pair : *list) {
    std::string_view left, right;
    if (!read_pair(pair, &left, &right)) return bad_stage("BPE", cat("merge ", merges.size(), " is no pair of tokens"));
    joined.assign(left).append(right);
    const BpeModel::Merge merge{tokens.id_of(left), tokens.id_of(right), tokens.id_of(joined)};
    if (merge.left < 0 || merge.right < 0 || merge.merged < 0) {
      return bad_stage("BPE", cat("merge ", merges.size(), ", \"", left, "\" and \"", right,
                                  "\": they and what they become must be in the vocabulary"));
    }
    merges.push_back(merge);
  }
  return std::unique_ptr<TokenModel>(new BpeModel(std::move(tokens), merges, options));
}

}  // namespace invar
