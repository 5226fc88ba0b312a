#include "core/text/sentencepiece/sentencepiece_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/text/pipeline/model_bpe.h"
#include "core/text/pipeline/model_unigram.h"
#include "core/text/pipeline/normalizer_precompiled.h"
#include "core/text/sentencepiece/model.pb.h"
#include "core/text/utf8.h"

namespace invar {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581 stands for a space

Status bad_model(std::string what) { return Error(Code::kDataLoss, "tokenizer.bad_file", std::move(what)); }

// Of "<0x0A>"; other texts give some byte.
char byte_of(std::string_view piece) {
  int value = 0;
  for (const char c : piece.substr(3, 2)) value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  return static_cast<char>(value);
}

// Every way to join two pieces to a third, best score first: what a SentencePiece BPE model may do.
std::vector<BpeModel::Merge> merges_of(const TokenTable& tokens, const std::vector<double>& scores,
                                       const std::vector<bool>& in_text) {
  std::vector<int32_t> order;
  for (int32_t id = 0; id < tokens.size(); ++id) {
    if (in_text[static_cast<size_t>(id)]) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  std::vector<BpeModel::Merge> merges;
  for (const int32_t id : order) {
    const std::string_view token = tokens.token_of(id);
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if ((static_cast<unsigned char>(token[cut]) & 0xC0) == 0x80) continue;
      const int32_t left = tokens.id_of(token.substr(0, cut)), right = tokens.id_of(token.substr(cut));
      if (left < 0 || right < 0 || !in_text[static_cast<size_t>(left)] || !in_text[static_cast<size_t>(right)])
        continue;
      merges.push_back({left, right, id});
    }
  }
  return merges;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> SentencePieceTokenizer::parse(std::string_view bytes,
                                                                       std::vector<TokenizerFile> files) {
  sentencepiece::Model model;
  if (bytes.size() > std::numeric_limits<int>::max() ||
      !model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || model.pieces_size() == 0) {
    return bad_model("not a SentencePiece model");
  }
  const auto& trainer = model.trainer_spec();
  if (trainer.model_type() != 1 && trainer.model_type() != 2) {
    return Error(
        Code::kUnimplemented, "tokenizer.unsupported",
        cat("SentencePiece model type ", trainer.model_type(), " is not supported; supported: 1 (unigram), 2 (BPE)"));
  }
  const bool bpe = trainer.model_type() == 2;
  std::shared_ptr<SentencePieceTokenizer> made(new SentencePieceTokenizer);
  TokenTable tokens(model.pieces_size());
  std::vector<double> scores;
  std::vector<bool> in_text;
  std::vector<std::pair<std::string, int32_t>> user_defined, controls;
  int32_t unknown = -1;
  for (int32_t id = 0; id < model.pieces_size(); ++id) {
    const auto& piece = model.pieces(id);
    if (piece.type() < 1 || piece.type() > 6 || !std::isfinite(piece.score()) || !valid_utf8(piece.piece())) {
      return bad_model(cat("piece ", id, " has type ", piece.type(), " and score ", piece.score(),
                           "; expected text, a type of 1 to 6 and a finite score"));
    }
    const auto kind = static_cast<Kind>(piece.type());
    if (kind == Kind::kUnused && bpe) {
      return Error(Code::kUnimplemented, "tokenizer.unsupported",
                   cat("piece ", id, " is unused; BPE models with unused pieces are not supported"));
    }
    tokens.set(id, piece.piece());
    scores.push_back(piece.score());
    in_text.push_back(kind == Kind::kNormal);
    made->kinds_.push_back(kind);
    if (kind == Kind::kUnknown) unknown = id;
    if (kind == Kind::kUserDefined) user_defined.emplace_back(piece.piece(), id);
    if (kind == Kind::kControl) controls.emplace_back(piece.piece(), id);
  }
  tokens.finish();
  made->user_defined_ = ByteTrie::build(std::move(user_defined));
  made->controls_ = ByteTrie::build(std::move(controls));
  const auto role = [&](int32_t id) { return id >= 0 && id < model.pieces_size() ? id : -1; };
  made->bos_ = role(trainer.bos_id());
  made->eos_ = role(trainer.eos_id());
  made->pad_ = role(trainer.pad_id());
  made->unknown_surface_ = trainer.unk_surface();
  made->suffix_ = trainer.treat_whitespace_as_suffix();
  const auto& normalizer = model.normalizer_spec();
  made->add_prefix_ = normalizer.add_dummy_prefix();
  made->remove_extra_ = normalizer.remove_extra_whitespaces();
  made->escape_ = normalizer.escape_whitespaces();
  INVAR_ASSIGN(made->characters_, make_precompiled_normalizer(normalizer.precompiled_charsmap(), true));
  if (bpe) {
    const auto merges = merges_of(tokens, scores, in_text);
    BpeOptions options;
    options.byte_fallback = trainer.byte_fallback();
    options.fuse_unknown = true;
    options.unknown = unknown;
    made->model_ = std::make_unique<BpeModel>(std::move(tokens), merges, options);
  } else {
    made->model_ =
        std::make_unique<UnigramModel>(std::move(tokens), std::move(scores), in_text, unknown, trainer.byte_fallback());
  }
  made->files_ = std::move(files);
  return std::shared_ptr<const Tokenizer>(std::move(made));
}

std::vector<int32_t> SentencePieceTokenizer::text_prefix() const {
  return bos_ >= 0 ? std::vector<int32_t>{bos_} : std::vector<int32_t>();
}

bool SentencePieceTokenizer::is_special(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return false;
  const Kind kind = kinds_[static_cast<size_t>(id)];
  return kind == Kind::kControl || kind == Kind::kUnknown;
}

size_t SentencePieceTokenizer::match(const ByteTrie& trie, std::string_view text, int32_t* id) {
  size_t node = 0, found = 0;
  for (size_t i = 0; i < text.size() && (node = trie.child(node, text[i])) != 0; ++i) {
    if (trie.value(node) < 0) continue;
    *id = trie.value(node);
    found = i + 1;
  }
  return found;
}

// The character map over what is no user-defined symbol, then the rules for spaces.
std::string SentencePieceTokenizer::normalised(std::string_view text, Scratch& scratch) const {
  std::string mapped;
  for (size_t at = 0, begin = 0; at <= text.size();) {
    int32_t id = 0;
    const size_t symbol = at < text.size() ? match(user_defined_, text.substr(at), &id) : 0;
    if (symbol == 0 && at < text.size()) {
      ++at;
      continue;
    }
    std::string part(text.substr(begin, at - begin));
    characters_->apply(&part, scratch);
    mapped += part;
    if (symbol == 0) break;
    mapped += text.substr(at, symbol);
    at += symbol;
    begin = at;
  }
  size_t first = 0, last = mapped.size();
  if (remove_extra_) {
    while (first < last && mapped[first] == ' ') ++first;
    while (last > first && mapped[last - 1] == ' ') --last;
  }
  if (first == last) return {};
  const std::string_view space = escape_ ? kMark : std::string_view(" ");
  std::string out;
  if (add_prefix_ && !suffix_) out += space;
  for (size_t i = first; i < last; ++i) {
    if (mapped[i] != ' ') {
      out += mapped[i];
    } else if (!remove_extra_ || mapped[i - 1] != ' ') {
      out += space;
    }
  }
  if (add_prefix_ && suffix_) out += space;
  return out;
}

void SentencePieceTokenizer::encode_stretch(std::string_view text, Scratch& scratch, std::vector<int32_t>* ids) const {
  const std::string normal = normalised(text, scratch);
  size_t begin = 0;
  for (size_t at = 0; at < normal.size();) {
    int32_t id = 0;
    const size_t symbol = match(user_defined_, std::string_view(normal).substr(at), &id);
    if (symbol == 0) {
      ++at;
      continue;
    }
    if (at > begin) model_->encode(std::string_view(normal).substr(begin, at - begin), scratch, ids);
    ids->push_back(id);
    at += symbol;
    begin = at;
  }
  if (begin < normal.size()) model_->encode(std::string_view(normal).substr(begin), scratch, ids);
}

void SentencePieceTokenizer::encode_to(std::string_view text, const EncodeOptions& options,
                                       std::vector<int32_t>* ids) const {
  std::string repaired;
  if (!valid_utf8(text)) text = repaired = lossy_utf8(text);
  Scratch scratch;
  if (options.add_special && bos_ >= 0) ids->push_back(bos_);
  size_t begin = 0;
  for (size_t at = 0; options.parse_special && at < text.size();) {
    int32_t id = 0;
    const size_t control = match(controls_, text.substr(at), &id);
    if (control == 0) {
      ++at;
      continue;
    }
    encode_stretch(text.substr(begin, at - begin), scratch, ids);
    ids->push_back(id);
    at += control;
    begin = at;
  }
  encode_stretch(text.substr(begin), scratch, ids);
}

Result<std::string> SentencePieceTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  bool first = true;  // nothing but control tokens so far
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size()) {
      return Error(Code::kOutOfRange, "tokenizer.id_out_of_range",
                   cat("token ", i, " is ", ids[i], "; ids lie in [0, ", vocab_size(), ")"));
    }
    const Kind kind = kinds_[static_cast<size_t>(ids[i])];
    std::string piece(model_->token_of(ids[i]));
    if (kind == Kind::kControl) {
      if (!skip_special) text += piece;
      continue;
    }
    if (kind == Kind::kUnknown) {
      text += unknown_surface_;
    } else if (kind == Kind::kByte && piece.size() == 6) {
      text.push_back(byte_of(piece));
    } else {
      if (first && (add_prefix_ || remove_extra_) && !suffix_ && piece.starts_with(kMark)) {
        piece.erase(0, kMark.size());
        // Where spaces were collapsed, all those at the beginning go; else one.
        if (!remove_extra_ || !piece.empty()) first = false;
        if (first) continue;
      }
      for (size_t at = 0; (at = piece.find(kMark, at)) != std::string::npos; ++at) piece.replace(at, kMark.size(), " ");
      text += piece;
    }
    first = false;
  }
  if (suffix_ && add_prefix_ && text.ends_with(' ')) text.pop_back();
  return text;
}

}  // namespace invar
