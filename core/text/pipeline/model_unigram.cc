#include "core/text/pipeline/model_unigram.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/text/pipeline/json_stage.h"
#include "core/text/pipeline/unicode.h"

namespace invar {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score

}  // namespace

UnigramModel::UnigramModel(TokenTable tokens, std::vector<double> scores, const std::vector<bool>& in_text,
                           int32_t unknown, bool byte_fallback)
    : tokens_(std::move(tokens)), scores_(std::move(scores)), unknown_(unknown), byte_fallback_(byte_fallback) {
  std::vector<std::pair<std::string, int32_t>> keys;
  keys.reserve(scores_.size());
  double lowest = 0;
  for (size_t id = 0; id < scores_.size(); ++id) {
    if (!in_text.empty() && !in_text[id]) continue;
    lowest = keys.empty() ? scores_[id] : std::min(lowest, scores_[id]);
    keys.emplace_back(tokens_.token_of(static_cast<int32_t>(id)), static_cast<int32_t>(id));
  }
  unknown_score_ = lowest - kUnknownPenalty;
  trie_ = ByteTrie::build(std::move(keys));
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = tokens_.id_of(cat("<0x", kDigits[byte >> 4], kDigits[byte & 15], ">"));
  }
}

void UnigramModel::find_path(std::string_view piece, std::vector<PathStep>* path) const {
  path->assign(piece.size() + 1, PathStep());
  const auto offer = [&](size_t to, double score, size_t from, int32_t id) {
    PathStep& step = (*path)[to];
    if (step.from < 0 || score > step.score) step = {score, static_cast<int64_t>(from), id};
  };
  for (size_t at = 0; at < piece.size();) {
    const double here = (*path)[at].score;
    size_t next = at;
    next_code_point(piece, &next);
    bool has_character = false;
    size_t node = 0;
    for (size_t i = at; i < piece.size() && (node = trie_.child(node, piece[i])) != 0; ++i) {
      const int32_t id = trie_.value(node);
      if (id < 0) continue;
      offer(i + 1, scores_[static_cast<size_t>(id)] + here, at, id);
      has_character = has_character || i + 1 == next;
    }
    if (!has_character) offer(next, unknown_score_ + here, at, unknown_);
    at = next;
  }
}

void UnigramModel::append_unknown(std::string_view text, std::vector<int32_t>* ids) const {
  if (const int32_t id = tokens_.id_of(text); id >= 0) {
    ids->push_back(id);
    return;
  }
  const auto id_of_byte = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char c) { return id_of_byte(c) >= 0; })) {
    for (const char c : text) ids->push_back(id_of_byte(c));
  } else if (unknown_ >= 0) {
    ids->push_back(unknown_);
  }
}

void UnigramModel::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>* ids) const {
  if (scratch.words.find(piece, ids)) return;
  std::vector<PathStep>& path = scratch.path;
  find_path(piece, &path);
  // Marks the steps of the best path from its end, then walks them from the beginning.
  std::vector<int32_t>& ends = scratch.symbols;
  ends.clear();
  for (auto at = static_cast<int64_t>(piece.size()); at > 0; at = path[static_cast<size_t>(at)].from) {
    ends.push_back(static_cast<int32_t>(at));
  }
  const size_t before = ids->size();
  size_t begin = 0;  // of the token, or of the run without one
  for (size_t i = ends.size(); i-- > 0;) {
    const auto end = static_cast<size_t>(ends[i]);
    const bool unknown = path[end].id == unknown_;
    if (unknown && i > 0 && path[static_cast<size_t>(ends[i - 1])].id == unknown_) continue;  // joins the next
    if (unknown) {
      append_unknown(piece.substr(begin, end - begin), ids);
    } else {
      ids->push_back(path[end].id);
    }
    begin = end;
  }
  scratch.words.store(piece, std::span<const int32_t>(ids->data() + before, ids->size() - before));
}

Result<std::unique_ptr<TokenModel>> make_unigram_model(const Json& json) {
  const auto vocab = json.find("vocab");
  if (vocab == json.end() || !vocab->is_array() || vocab->empty()) {
    return bad_stage("Unigram", "\"vocab\" is missing, empty or no list");
  }
  TokenTable tokens(static_cast<int32_t>(vocab->size()));
  std::vector<double> scores;
  for (const Json& entry : *vocab) {
    const bool good = entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number();
    if (!good || !std::isfinite(entry[1].get<double>())) {
      return bad_stage("Unigram", cat("entry ", scores.size(), " of \"vocab\" is no token with a finite score"));
    }
    tokens.set(static_cast<int32_t>(scores.size()), entry[0].get_ref<const std::string&>());
    scores.push_back(entry[1].get<double>());
  }
  tokens.finish();
  INVAR_ASSIGN(const int64_t unknown, number_field(json, "unk_id", -1));
  if (unknown >= static_cast<int64_t>(scores.size())) {
    return bad_stage("Unigram", cat("\"unk_id\" is ", unknown, " in a vocabulary of ", scores.size()));
  }
  INVAR_ASSIGN(const bool byte_fallback, flag_field(json, "byte_fallback", false));
  return std::unique_ptr<TokenModel>(new UnigramModel(
      std::move(tokens), std::move(scores), {}, static_cast<int32_t>(std::max<int64_t>(unknown, -1)), byte_fallback));
}

}  // namespace invar
