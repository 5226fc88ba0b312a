// The table of decoders and the plain ones. ByteLevel and Metaspace have files of their own.
#include <utility>

#include "core/text/pipeline/byte_level.h"
#include "core/text/pipeline/json_stage.h"
#include "core/text/pipeline/metaspace.h"
#include "core/text/pipeline/unicode.h"
#include "core/text/utf8.h"

namespace invar {
namespace {

using DecoderResult = Result<std::unique_ptr<Decoder>>;
using Tokens = std::vector<std::string>;

class SequenceDecoder final : public Decoder {
 public:
  explicit SequenceDecoder(std::vector<std::unique_ptr<Decoder>> stages) : stages_(std::move(stages)) {}
  void apply(Tokens* tokens) const override {
    for (const auto& stage : stages_) stage->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> stages_;
};

class FuseDecoder final : public Decoder {
 public:
  static DecoderResult make(const Json&) { return std::unique_ptr<Decoder>(new FuseDecoder); }
  void apply(Tokens* tokens) const override {
    std::string all;
    for (const std::string& token : *tokens) all += token;
    tokens->assign(1, std::move(all));
  }
};

// Up to `start` characters `content` go from the beginning of every token, up to `stop` from its end.
class StripDecoder final : public Decoder {
 public:
  StripDecoder(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  static DecoderResult make(const Json& json) {
    INVAR_ASSIGN(std::string content, text_field(json, "content", " "));
    INVAR_ASSIGN(const int64_t start, number_field(json, "start", 0));
    INVAR_ASSIGN(const int64_t stop, number_field(json, "stop", 0));
    if (content.empty()) return bad_stage("Strip", "\"content\" is empty");
    return std::unique_ptr<Decoder>(new StripDecoder(std::move(content), start, stop));
  }
  void apply(Tokens* tokens) const override {
    for (std::string& token : *tokens) {
      for (int64_t i = 0; i < start_ && token.starts_with(content_); ++i) token.erase(0, content_.size());
      for (int64_t i = 0; i < stop_ && token.ends_with(content_); ++i) token.resize(token.size() - content_.size());
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(Regex regex, std::string to) : regex_(std::move(regex)), to_(std::move(to)) {}
  static DecoderResult make(const Json& json) {
    INVAR_ASSIGN(Regex regex, pattern_field(json));
    INVAR_ASSIGN(std::string to, text_field(json, "content", ""));
    return std::unique_ptr<Decoder>(new ReplaceDecoder(std::move(regex), std::move(to)));
  }
  void apply(Tokens* tokens) const override {
    RegexScratch scratch;
    std::vector<TextRange> matches;
    for (std::string& token : *tokens) {
      regex_.find_all(token, scratch, &matches);
      for (size_t i = matches.size(); i-- > 0;) token.replace(matches[i].begin, matches[i].size(), to_);
    }
  }

 private:
  Regex regex_;
  std::string to_;
};

// Runs of tokens "<0x0A>" become the bytes they name. A run that is no UTF-8 gives a replacement character for each
// byte, except that an unfinished character at the very end stays as it is: more tokens may follow.
class ByteFallbackDecoder final : public Decoder {
 public:
  static DecoderResult make(const Json&) { return std::unique_ptr<Decoder>(new ByteFallbackDecoder); }
  void apply(Tokens* tokens) const override {
    Tokens out;
    std::string bytes;
    const auto flush = [&](bool at_end) {
      if (bytes.empty()) return;
      Utf8Checker checker;
      const bool good = checker.feed(bytes) && (at_end || checker.finish());
      if (!good) {
        const size_t count = bytes.size();
        bytes.clear();
        for (size_t i = 0; i < count; ++i) bytes += "\xEF\xBF\xBD";
      }
      out.push_back(std::exchange(bytes, {}));
    };
    for (std::string& token : *tokens) {
      const int byte = byte_of(token);
      if (byte >= 0) {
        bytes.push_back(static_cast<char>(byte));
      } else {
        flush(false);
        out.push_back(std::move(token));
      }
    }
    flush(true);
    *tokens = std::move(out);
  }

 private:
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    int byte = 0;
    for (const char c : token.substr(3, 2)) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                               : -1;
      if (digit < 0) return -1;
      byte = byte * 16 + digit;
    }
    return byte;
  }
};

constexpr StageKind<Decoder> kKinds[] = {
    {"ByteLevel", make_byte_level_decoder},
    {"Metaspace", make_metaspace_decoder},
    {"Fuse", FuseDecoder::make},
    {"Strip", StripDecoder::make},
    {"ByteFallback", ByteFallbackDecoder::make},
    {"Replace", ReplaceDecoder::make},
};

}  // namespace

DecoderResult make_decoder(const Json& json) {
  if (json.is_null()) return std::unique_ptr<Decoder>();
  if (stage_type(json) != "Sequence") return make_by_kind("decoder", json, kKinds);
  std::vector<std::unique_ptr<Decoder>> stages;
  INVAR_TRY(for_each_stage(json, "decoders", [&](const Json& stage) -> Status {
    INVAR_ASSIGN(auto made, make_decoder(stage));
    if (made) stages.push_back(std::move(made));
    return {};
  }));
  return std::unique_ptr<Decoder>(new SequenceDecoder(std::move(stages)));
}

}  // namespace invar
