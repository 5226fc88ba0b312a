#include "core/text/byte_tokenizer.h"

#include <array>
#include <nlohmann/json.hpp>

#include "core/text/pipeline/byte_level.h"

namespace invar {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kSpecial = {"<|bos|>", "<|eos|>", "<|pad|>"};

Status unsupported(std::string_view what) {
  return Error(Code::kUnimplemented, "tokenizer.unsupported",
               cat(what, " than the byte-level tokenizer of this library has"));
}

}  // namespace

void ByteTokenizer::encode_to(std::string_view text, const EncodeOptions& options, std::vector<int32_t>* ids) const {
  if (options.add_special) ids->push_back(kBos);
  ids->reserve(ids->size() + text.size());
  for (size_t i = 0; i < text.size();) {
    if (options.parse_special && text[i] == '<') {
      size_t special = 0;
      while (special < kSpecial.size() && text.substr(i, kSpecial[special].size()) != kSpecial[special]) ++special;
      if (special < kSpecial.size()) {
        ids->push_back(kBos + static_cast<int32_t>(special));
        i += kSpecial[special].size();
        continue;
      }
    }
    ids->push_back(static_cast<unsigned char>(text[i++]));
  }
}

Result<std::string> ByteTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  text.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= kVocabSize) {
      return Error(Code::kOutOfRange, "tokenizer.id_out_of_range",
                   cat("token ", i, " is ", ids[i], "; ids lie in [0, ", kVocabSize, ")"));
    }
    if (ids[i] < 256) {
      text.push_back(static_cast<char>(ids[i]));
    } else if (!skip_special) {
      text += kSpecial[static_cast<size_t>(ids[i] - kBos)];
    }
  }
  return text;
}

std::string ByteTokenizer::tokenizer_json() {
  OrderedJson added = OrderedJson::array();
  for (size_t i = 0; i < kSpecial.size(); ++i) {
    added.push_back({{"id", kBos + static_cast<int>(i)},
                     {"content", kSpecial[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  OrderedJson vocab = OrderedJson::object();
  const auto characters = byte_characters();
  for (size_t byte = 0; byte < characters.size(); ++byte) vocab[characters[byte]] = byte;
  for (size_t i = 0; i < kSpecial.size(); ++i) vocab[std::string(kSpecial[i])] = kBos + static_cast<int>(i);
  const OrderedJson byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const OrderedJson json = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", added},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", byte_level},
                            {"post_processor", nullptr},
                            {"decoder", byte_level},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"ignore_merges", false},
                              {"vocab", vocab},
                              {"merges", OrderedJson::array()}}}};
  return json.dump(1);
}

std::vector<TokenizerFile> ByteTokenizer::files() const {
  const OrderedJson names = {{"bos_token", kSpecial[0]}, {"eos_token", kSpecial[1]}, {"pad_token", kSpecial[2]}};
  OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  config.update(names);
  config["clean_up_tokenization_spaces"] = false;
  config["model_max_length"] = 1000000000;
  return {{"tokenizer.json", tokenizer_json()},
          {"tokenizer_config.json", config.dump(1) + "\n"},
          {"special_tokens_map.json", names.dump(1) + "\n"}};
}

int32_t ByteTokenizer::id_of(std::string_view token) const {
  for (size_t i = 0; i < kSpecial.size(); ++i) {
    if (token == kSpecial[i]) return kBos + static_cast<int32_t>(i);
  }
  const auto characters = byte_characters();
  for (size_t byte = 0; byte < characters.size(); ++byte) {
    if (token == characters[byte]) return static_cast<int32_t>(byte);
  }
  return -1;
}

std::string ByteTokenizer::token_of(int32_t id) const {
  if (id < 0 || id >= kVocabSize) return {};
  if (id >= kBos) return std::string(kSpecial[static_cast<size_t>(id - kBos)]);
  return byte_characters()[static_cast<size_t>(id)];
}

Status ByteTokenizer::recognise(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    const auto& model = json.at("model");
    const auto type = model.value("type", std::string("?"));
    if (type != "BPE") return unsupported(cat("another model, \"", type, "\","));
    if (!model.at("merges").empty()) return unsupported(cat("more merges, ", model.at("merges").size(), ","));
    const auto ours = nlohmann::json::parse(tokenizer_json());
    for (const char* key : {"normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens"}) {
      const auto found = json.find(key);
      const bool same = found == json.end() ? ours.at(key).is_null() : *found == ours.at(key);
      if (!same) return unsupported(cat("another \"", key, "\""));
    }
    if (model.at("vocab") != ours.at("model").at("vocab")) return unsupported("another vocabulary");
  } catch (const nlohmann::json::exception& error) {
    return Error(Code::kDataLoss, "tokenizer.bad_file", cat("not a tokenizer.json: ", error.what()));
  }
  return {};
}

}  // namespace invar
