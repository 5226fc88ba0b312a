#include "core/text/pipeline/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <span>

#include "core/text/pipeline/byte_level.h"
#include "core/text/utf8.h"

namespace invar {
namespace {

using Pair = std::pair<int32_t, int32_t>;

uint64_t key_of(const Pair& pair) {
  return uint64_t{static_cast<uint32_t>(pair.first)} << 32 | static_cast<uint32_t>(pair.second);
}

// A pair that may be joined, with the words in which it was seen when it was noted. A pair can be noted more than once.
struct Candidate {
  int64_t count;
  Pair pair;
  std::vector<uint32_t> words;
};
struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

struct Word {
  std::vector<int32_t> symbols;
  int64_t count;
};

// Counts of pairs, and where pairs were seen since the last call of take().
class PairCounts {
 public:
  void add(const Pair& pair, int64_t change, uint32_t word) {
    counts_[key_of(pair)] += change;
    if (change <= 0) return;
    auto& words = seen_[key_of(pair)];
    if (words.empty() || words.back() != word) words.push_back(word);
  }
  int64_t of(const Pair& pair) { return counts_[key_of(pair)]; }
  // Hands out (pair, words) of all seen pairs that occur.
  template <typename Take>
  void take(Take take) {
    for (auto& [key, words] : seen_) {
      const Pair pair(static_cast<int32_t>(key >> 32), static_cast<int32_t>(key));
      if (counts_[key] > 0) take(pair, counts_[key], std::move(words));
    }
    seen_.clear();
  }

 private:
  std::unordered_map<uint64_t, int64_t> counts_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> seen_;
};

// Joins `pair` to `merged` in the word and notes what that does to its neighbours.
void join(Word* word, const Pair& pair, int32_t merged, uint32_t index, PairCounts* counts) {
  std::vector<int32_t>& symbols = word->symbols;
  size_t out = 0;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i] != pair.first || i + 1 >= symbols.size() || symbols[i + 1] != pair.second) {
      symbols[out++] = symbols[i];
      continue;
    }
    if (out > 0) {
      counts->add({symbols[out - 1], pair.first}, -word->count, index);
      counts->add({symbols[out - 1], merged}, word->count, index);
    }
    symbols[out++] = merged;
    ++i;
    if (i + 1 < symbols.size()) {
      counts->add({pair.second, symbols[i + 1]}, -word->count, index);
      counts->add({merged, symbols[i + 1]}, word->count, index);
    }
  }
  symbols.resize(out);
}

void quote(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') *out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      *out += "\\u00";
      *out += kDigits[static_cast<size_t>(c) >> 4];
      *out += kDigits[static_cast<size_t>(c) & 15];
    } else {
      *out += c;
    }
  }
  *out += '"';
}

std::string tokenizer_json_of(const BpeTrainer::Trained& trained, size_t special_tokens) {
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  for (size_t i = 0; i < special_tokens; ++i) {
    out += cat(i > 0 ? "," : "", "\n    {\"id\": ", i, ", \"content\": ");
    quote(trained.tokens[i], &out);
    out += ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}";
  }
  const std::string byte_level =
      "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
      "\"use_regex\": true}";
  out += cat(special_tokens > 0 ? "\n  " : "", "],\n  \"normalizer\": null,\n  \"pre_tokenizer\": ", byte_level,
             ",\n  \"post_processor\": null,\n  \"decoder\": ", byte_level,
             ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
             "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
             "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {");
  for (size_t id = 0; id < trained.tokens.size(); ++id) {
    out += id > 0 ? ",\n      " : "\n      ";
    quote(trained.tokens[id], &out);
    out += cat(": ", id);
  }
  out += "\n    },\n    \"merges\": [";
  for (size_t i = 0; i < trained.merges.size(); ++i) {
    out += i > 0 ? ",\n      [" : "\n      [";
    quote(trained.tokens[static_cast<size_t>(trained.merges[i].first)], &out);
    out += ", ";
    quote(trained.tokens[static_cast<size_t>(trained.merges[i].second)], &out);
    out += "]";
  }
  out += trained.merges.empty() ? "]\n  }\n}\n" : "\n    ]\n  }\n}\n";
  return out;
}

}  // namespace

BpeTrainer::BpeTrainer(BpeTrainerOptions options) : options_(std::move(options)), words_(byte_level_words()) {}
BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::feed(std::string_view text) {
  Pieces pieces;
  pieces.text = text;
  pieces.ranges.push_back({0, text.size()});
  words_->apply(&pieces, scratch_);
  for (const TextRange& range : pieces.ranges) ++counts_[std::string(pieces.view(range))];
}

Result<BpeTrainer::Trained> BpeTrainer::learn(const Hooks& hooks) const {
  Trained trained;
  trained.tokens = options_.special_tokens;
  // Bytes in the order of the characters that stand for them.
  const auto characters = byte_characters();
  std::vector<size_t> order(256);
  for (size_t byte = 0; byte < 256; ++byte) order[byte] = byte;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return characters[a] < characters[b]; });
  int32_t byte_ids[256];
  for (const size_t byte : order) {
    byte_ids[byte] = static_cast<int32_t>(trained.tokens.size());
    trained.tokens.push_back(characters[byte]);
  }
  if (options_.vocab_size < static_cast<int64_t>(trained.tokens.size()) || options_.vocab_size > (1 << 24)) {
    return Error(Code::kInvalidArgument, "tokenizer.vocab_size",
                 cat("vocabulary size ", options_.vocab_size, "; at least ", trained.tokens.size(), " (256 bytes and ",
                     options_.special_tokens.size(), " special tokens), at most ", 1 << 24));
  }

  std::vector<Word> words;
  words.reserve(counts_.size());
  PairCounts counts;
  for (const auto& [text, count] : counts_) {
    Word word{{}, count};
    for (const char c : text) word.symbols.push_back(byte_ids[static_cast<unsigned char>(c)]);
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      counts.add({word.symbols[i], word.symbols[i + 1]}, count, static_cast<uint32_t>(words.size()));
    }
    words.push_back(std::move(word));
  }
  std::unordered_map<std::string, int32_t> ids;
  for (size_t id = 0; id < trained.tokens.size(); ++id) ids.emplace(trained.tokens[id], static_cast<int32_t>(id));

  std::priority_queue<Candidate, std::vector<Candidate>, Later> queue;
  const auto note_seen = [&] {
    counts.take([&](const Pair& pair, int64_t count, std::vector<uint32_t> where) {
      queue.push({count, pair, std::move(where)});
    });
  };
  note_seen();
  while (static_cast<int64_t>(trained.tokens.size()) < options_.vocab_size && !queue.empty()) {
    Candidate top = std::move(const_cast<Candidate&>(queue.top()));  // it is popped at once
    queue.pop();
    if (const int64_t now = counts.of(top.pair); top.count != now) {
      top.count = now;
      queue.push(std::move(top));
      continue;
    }
    if (top.count < 1 || top.count < options_.min_frequency) break;
    std::string token = trained.tokens[static_cast<size_t>(top.pair.first)];
    token += trained.tokens[static_cast<size_t>(top.pair.second)];
    const auto [found, is_new] = ids.emplace(token, static_cast<int32_t>(trained.tokens.size()));
    if (is_new) trained.tokens.push_back(std::move(token));
    trained.merges.push_back(top.pair);
    for (const uint32_t word : top.words) join(&words[word], top.pair, found->second, word, &counts);
    note_seen();
    if (trained.merges.size() % 64 == 0) {
      INVAR_TRY(check_cancel(hooks.cancel));
      if (hooks.progress) hooks.progress(static_cast<int64_t>(trained.tokens.size()), options_.vocab_size);
    }
  }
  // A pair that was joined twice counts where it was joined last.
  std::unordered_map<uint64_t, size_t> last;
  for (size_t i = 0; i < trained.merges.size(); ++i) last[key_of(trained.merges[i])] = i;
  std::vector<Pair> merges;
  for (size_t i = 0; i < trained.merges.size(); ++i) {
    if (last[key_of(trained.merges[i])] == i) merges.push_back(trained.merges[i]);
  }
  trained.merges = std::move(merges);
  return trained;
}

std::string BpeTrainer::tokenizer_json(const Trained& trained) const {
  return tokenizer_json_of(trained, options_.special_tokens.size());
}

std::string BpeTrainer::quoted(std::string_view text) {
  std::string out;
  quote(text, &out);
  return out;
}

}  // namespace invar
