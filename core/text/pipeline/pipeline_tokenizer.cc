#include "core/text/pipeline/pipeline_tokenizer.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

#include "core/text/pipeline/json_stage.h"
#include "core/text/utf8.h"

namespace invar {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxIdle = 8;

// Whether `text` nests deeper than kMaxDepth: the parsed tree is freed recursively.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

Result<Json> parse_json(std::string_view label, std::string_view text) {
  if (too_deep(text)) {
    return Error(Code::kDataLoss, "tokenizer.bad_file", cat(label, ": nested deeper than ", kMaxDepth));
  }
  try {
    Json json = Json::parse(text);
    if (json.is_object()) return json;
    return Error(Code::kDataLoss, "tokenizer.bad_file", cat(label, ": not a JSON object"));
  } catch (const Json::exception& error) {
    return Error(Code::kDataLoss, "tokenizer.bad_file", cat(label, ": not JSON: ", error.what()));
  }
}

const Json& member(const Json& json, const char* key) {
  static const Json kNull;
  const auto found = json.find(key);
  return found == json.end() ? kNull : *found;
}

// Whether a ByteLevel stage ends the pre-tokenizer, so that the model can read bytes.
bool ends_in_byte_level(const Json& json) {
  if (!json.is_object()) return false;
  if (stage_type(json) == "ByteLevel") return true;
  if (stage_type(json) != "Sequence") return false;
  const Json& list = member(json, "pretokenizers");
  if (!list.is_array() || list.empty()) return false;
  for (size_t i = 0; i + 1 < list.size(); ++i) {
    if (stage_type(list[i]) == "ByteLevel" || stage_type(list[i]) == "Sequence") return false;
  }
  return stage_type(list.back()) == "ByteLevel";
}

Status read_truncation(const Json& json, PipelineParts* parts) {
  if (json.is_null()) return {};
  INVAR_ASSIGN(parts->max_tokens, number_field(json, "max_length", 512));
  INVAR_ASSIGN(const std::string direction, text_field(json, "direction", "Right"));
  if (parts->max_tokens < 1) return bad_stage("truncation", cat("\"max_length\" is ", parts->max_tokens));
  if (direction != "Right" && direction != "Left") {
    return unsupported_stage("truncation: direction", direction, "Right, Left");
  }
  parts->truncate_left = direction == "Left";
  return {};
}

// The content of a special token in tokenizer_config.json: a string, or an object with "content".
std::string content_of(const Json& json, const char* key) {
  const Json& value = member(json, key);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && member(value, "content").is_string()) return member(value, "content").get<std::string>();
  return {};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> PipelineTokenizer::parse(std::string_view tokenizer_json,
                                                                  std::vector<TokenizerFile> files) {
  INVAR_ASSIGN(const Json json, parse_json("tokenizer.json", tokenizer_json));
  PipelineParts parts;
  const Json& pre_tokenizer = member(json, "pre_tokenizer");
  const Json& model = member(json, "model");
  const std::string kind = model.is_object() ? stage_type(model) : std::string();
  const bool reads_bytes = kind != "Unigram" && ends_in_byte_level(pre_tokenizer);
  INVAR_ASSIGN(parts.added, AddedTokens::parse(member(json, "added_tokens")));
  INVAR_ASSIGN(parts.normalizer, make_normalizer(member(json, "normalizer")));
  INVAR_ASSIGN(parts.pre_tokenizer, make_pre_tokenizer(pre_tokenizer, !reads_bytes));
  INVAR_ASSIGN(parts.model, make_model(model, reads_bytes));
  INVAR_ASSIGN(parts.post_processor, make_post_processor(member(json, "post_processor")));
  INVAR_ASSIGN(parts.decoder, make_decoder(member(json, "decoder")));
  INVAR_TRY(read_truncation(member(json, "truncation"), &parts));
  return create(std::move(parts), std::move(files));
}

Result<std::shared_ptr<const Tokenizer>> PipelineTokenizer::create(PipelineParts parts,
                                                                   std::vector<TokenizerFile> files) {
  return std::shared_ptr<const Tokenizer>(new PipelineTokenizer(std::move(parts), std::move(files)));
}

PipelineTokenizer::PipelineTokenizer(PipelineParts parts, std::vector<TokenizerFile> files)
    : parts_(std::move(parts)), added_(parts_.added, parts_.normalizer.get()), files_(std::move(files)) {
  vocab_size_ = parts_.model->size();
  for (const AddedToken& token : added_.all()) vocab_size_ = std::max(vocab_size_, token.id + 1);
  if (parts_.post_processor) {
    before_ = parts_.post_processor->before();
    after_ = parts_.post_processor->after();
    for (const int32_t id : before_) vocab_size_ = std::max(vocab_size_, id + 1);
    for (const int32_t id : after_) vocab_size_ = std::max(vocab_size_, id + 1);
  }
  choose_special_tokens();
}

void PipelineTokenizer::choose_special_tokens() {
  const auto from_files = [&](const char* key) {
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
      for (const TokenizerFile& file : files_) {
        if (file.name != name) continue;
        const Result<Json> json = parse_json(name, file.text);
        if (!json.ok()) continue;
        const std::string content = content_of(json.value(), key);
        if (const int32_t id = id_of(content); !content.empty() && id >= 0) return id;
      }
    }
    return int32_t{-1};
  };
  // A bare tokenizer.json names no roles: the usual names, if they are special tokens.
  const auto by_name = [&](std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      if (const int32_t id = id_of(name); id >= 0 && is_special(id)) return id;
    }
    return int32_t{-1};
  };
  const bool named = std::any_of(files_.begin(), files_.end(), [](const TokenizerFile& file) {
    return file.name == "tokenizer_config.json" || file.name == "special_tokens_map.json";
  });
  bos_ = from_files("bos_token");
  eos_ = from_files("eos_token");
  pad_ = from_files("pad_token");
  if (named) return;
  bos_ = by_name({"<s>", "<bos>", "<|begin_of_text|>", "<|bos|>"});
  eos_ = by_name({"</s>", "<eos>", "<|end_of_text|>", "<|eos|>", "<|endoftext|>", "<|im_end|>"});
  pad_ = by_name({"<pad>", "<|pad|>", "[PAD]"});
}

std::unique_ptr<Scratch> PipelineTokenizer::take_scratch() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<Scratch>();
}

void PipelineTokenizer::give_scratch(std::unique_ptr<Scratch> scratch) const {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(scratch));
}

void PipelineTokenizer::encode_to(std::string_view text, const EncodeOptions& options,
                                  std::vector<int32_t>* ids) const {
  std::string repaired;
  if (!valid_utf8(text)) text = repaired = lossy_utf8(text);
  auto scratch = take_scratch();
  if (options.add_special) ids->insert(ids->end(), before_.begin(), before_.end());
  const size_t begin = ids->size();
  for (const TextStretch& stretch : added_.split(text, false, options.parse_special)) {
    if (stretch.id >= 0) {
      ids->push_back(stretch.id);
    } else {
      const std::string_view part = text.substr(stretch.range.begin, stretch.range.size());
      encode_stretch(part, stretch.range.begin == 0, options, *scratch, ids);
    }
  }
  if (options.truncate && parts_.max_tokens > 0) {
    const size_t around = options.add_special ? before_.size() + after_.size() : 0;
    const size_t most =
        static_cast<size_t>(parts_.max_tokens) > around ? static_cast<size_t>(parts_.max_tokens) - around : 0;
    if (ids->size() - begin > most) {
      const auto first = ids->begin() + static_cast<ptrdiff_t>(begin);
      if (parts_.truncate_left) {
        ids->erase(first, ids->end() - static_cast<ptrdiff_t>(most));
      } else {
        ids->erase(first + static_cast<ptrdiff_t>(most), ids->end());
      }
    }
  }
  if (options.add_special) ids->insert(ids->end(), after_.begin(), after_.end());
  give_scratch(std::move(scratch));
}

void PipelineTokenizer::encode_stretch(std::string_view text, bool begins_input, const EncodeOptions& options,
                                       Scratch& scratch, std::vector<int32_t>* ids) const {
  std::string normal(text);
  if (parts_.normalizer) parts_.normalizer->apply(&normal, scratch);
  if (!added_.has_normalized()) {
    encode_piece(std::move(normal), begins_input, scratch, ids);
    return;
  }
  for (const TextStretch& stretch : added_.split(normal, true, options.parse_special)) {
    if (stretch.id >= 0) {
      ids->push_back(stretch.id);
    } else {
      encode_piece(normal.substr(stretch.range.begin, stretch.range.size()), begins_input && stretch.range.begin == 0,
                   scratch, ids);
    }
  }
}

void PipelineTokenizer::encode_piece(std::string text, bool begins_input, Scratch& scratch,
                                     std::vector<int32_t>* ids) const {
  if (text.empty()) return;
  if (!parts_.pre_tokenizer) {
    parts_.model->encode(text, scratch, ids);
    return;
  }
  Pieces pieces;
  pieces.text = std::move(text);
  pieces.ranges.push_back({0, pieces.text.size()});
  pieces.begins_input = begins_input;
  parts_.pre_tokenizer->apply(&pieces, scratch);
  for (const TextRange& range : pieces.ranges) {
    if (range.size() > 0) parts_.model->encode(pieces.view(range), scratch, ids);
  }
}

Result<std::string> PipelineTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size_) {
      return Error(Code::kOutOfRange, "tokenizer.id_out_of_range",
                   cat("token ", i, " is ", ids[i], "; ids lie in [0, ", vocab_size_, ")"));
    }
    const AddedToken* added = added_.find(ids[i]);
    if (added != nullptr && added->special && skip_special) continue;
    tokens.emplace_back(added != nullptr ? std::string_view(added->content) : parts_.model->token_of(ids[i]));
  }
  if (parts_.decoder) parts_.decoder->apply(&tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!parts_.decoder && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

int32_t PipelineTokenizer::id_of(std::string_view token) const {
  const int32_t id = added_.id_of(token);
  return id >= 0 ? id : parts_.model->id_of(token);
}

std::string PipelineTokenizer::token_of(int32_t id) const {
  const AddedToken* added = added_.find(id);
  return added != nullptr ? added->content : std::string(parts_.model->token_of(id));
}

bool PipelineTokenizer::is_special(int32_t id) const {
  const AddedToken* added = added_.find(id);
  return added != nullptr && added->special;
}

}  // namespace invar
