#include "core/text/byte_tokenizer.h"

#include <array>
#include <nlohmann/json.hpp>

#include "core/text/utf8.h"

namespace invar {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kSpecial = {"<|bos|>", "<|eos|>", "<|pad|>"};

// The character that stands for each byte in a byte-level vocabulary: itself where it is printable in Latin-1, else
// the next free one from U+0100 on (Radford et al. 2019, "Language models are unsupervised multitask learners").
std::array<std::string, 256> byte_characters() {
  std::array<std::string, 256> characters;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    characters[byte] = utf8_of(printable ? byte : next++);
  }
  return characters;
}

Status unsupported(std::string_view what) {
  return Error(Code::kUnimplemented, "tokenizer.unsupported",
               cat(what, "; only the byte-level tokenizer of this library is supported so far"));
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
  Json added = Json::array();
  for (size_t i = 0; i < kSpecial.size(); ++i) {
    added.push_back({{"id", kBos + static_cast<int>(i)},
                     {"content", kSpecial[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  Json vocab = Json::object();
  const auto characters = byte_characters();
  for (size_t byte = 0; byte < characters.size(); ++byte) vocab[characters[byte]] = byte;
  for (size_t i = 0; i < kSpecial.size(); ++i) vocab[std::string(kSpecial[i])] = kBos + static_cast<int>(i);
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json json = {{"version", "1.0"},
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
                       {"merges", Json::array()}}}};
  return json.dump(1);
}

std::vector<TokenizerFile> ByteTokenizer::files() const {
  const Json names = {{"bos_token", kSpecial[0]}, {"eos_token", kSpecial[1]}, {"pad_token", kSpecial[2]}};
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  config.update(names);
  config["clean_up_tokenization_spaces"] = false;
  config["model_max_length"] = 1000000000;
  return {{"tokenizer.json", tokenizer_json()},
          {"tokenizer_config.json", config.dump(1) + "\n"},
          {"special_tokens_map.json", names.dump(1) + "\n"}};
}

Status save_tokenizer(const Tokenizer& tokenizer, FileSystem& files, const std::string& folder) {
  for (const TokenizerFile& file : tokenizer.files()) {
    INVAR_TRY(write_text_atomically(files, join_path(folder, file.name), file.text));
  }
  return {};
}

Status ByteTokenizer::recognise(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    const auto& model = json.at("model");
    const auto type = model.value("type", std::string("?"));
    if (type != "BPE") return unsupported(cat("tokenizer model \"", type, "\""));
    if (!model.at("merges").empty())
      return unsupported(cat("a vocabulary with ", model.at("merges").size(), " merges"));
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

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(FileSystem& files, const std::string& path) {
  constexpr int64_t kMaxBytes = int64_t{256} << 20;
  const std::string file = files.is_directory(path) ? join_path(path, "tokenizer.json") : path;
  INVAR_ASSIGN(const std::string text, read_text(files, file, kMaxBytes));
  const Status status = ByteTokenizer::recognise(text);
  if (!status.ok()) return status.with_context(file);
  return std::shared_ptr<const Tokenizer>(std::make_shared<ByteTokenizer>());
}

}  // namespace invar
