// The stages of a tokenizer.json, each behind one small interface. A stage kind is one file and one line in a table
// (normalizers.cc, pre_tokenizers.cc, models.cc, post_processors.cc, decoders.cc).
//
//   text -> Normalizer -> PreTokenizer -> TokenModel -> ids -> PostProcessor
//   ids -> tokens -> Decoder -> text
//
// Thread rule: const once made; a Scratch belongs to one call.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/text/pipeline/regex.h"
#include "core/text/pipeline/word_cache.h"

namespace invar {

using Json = nlohmann::json;

// The best way to reach a place of a text.
struct PathStep {
  double score = 0;
  int64_t from = -1;  // -1: not reached
  int32_t id = 0;
};

// What a call works with, so that the stages stay const.
struct Scratch {
  RegexScratch regex;
  std::vector<TextRange> matches;
  std::vector<int32_t> symbols;
  std::vector<PathStep> path;
  WordCache words;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string* text, Scratch& scratch) const = 0;
};

// A stretch of text between added tokens, and the pieces it is cut into. Pieces rise and do not overlap; text outside
// of them is left out.
struct Pieces {
  std::string text;
  std::vector<TextRange> ranges;
  bool begins_input = false;  // the first piece stands at the beginning of the whole input

  std::string_view view(const TextRange& range) const {
    return std::string_view(text).substr(range.begin, range.size());
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces* pieces, Scratch& scratch) const = 0;
};

// One piece to ids.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Ids are below this; not every one must have a token.
  virtual int32_t size() const = 0;
  virtual void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>* ids) const = 0;
  // -1 where there is none.
  virtual int32_t id_of(std::string_view token) const = 0;
  // Empty where there is none.
  virtual std::string_view token_of(int32_t id) const = 0;
};

// What stands around the ids of one text.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  virtual std::vector<int32_t> before() const = 0;
  virtual std::vector<int32_t> after() const = 0;
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  // The texts between which nothing stands; a decoder may join or drop some.
  virtual void apply(std::vector<std::string>* tokens) const = 0;
};

// From the file's JSON. null gives a null pointer. "tokenizer.unsupported" names the kind and what is supported,
// "tokenizer.bad_file" the field that is missing or of the wrong type.
Result<std::unique_ptr<Normalizer>> make_normalizer(const Json& json);
// map_bytes: a ByteLevel stage writes bytes as the characters that stand for them; else the model reads bytes.
Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const Json& json, bool map_bytes);
Result<std::unique_ptr<TokenModel>> make_model(const Json& json, bool reads_bytes);
Result<std::unique_ptr<PostProcessor>> make_post_processor(const Json& json);
Result<std::unique_ptr<Decoder>> make_decoder(const Json& json);

}  // namespace invar
