#include "core/calibrate/tokens.h"

#include <algorithm>
#include <string_view>

#include "core/text/byte_tokenizer.h"
#include "core/text/data_options.h"
#include "core/text/token_buffer.h"

namespace invar {
namespace {

// Bytes of one id in a token file by its name; 0 for text.
int bytes_per_token(std::string_view path) { return path.ends_with(".u16") ? 2 : path.ends_with(".u32") ? 4 : 0; }

Result<std::shared_ptr<const Tokenizer>> tokenizer_of(const v1::CalibrateConfig& config, FileSystem& files) {
  const v1::TokenizerConfig& tokenizer = config.data().tokenizer();
  if (tokenizer.kind() == v1::TOKENIZER_KIND_BYTE) return std::shared_ptr<const Tokenizer>(new ByteTokenizer);
  return load_tokenizer(files, tokenizer.path().empty() ? config.source() : tokenizer.path());
}

Result<TokenBuffer> read_ids(const v1::CalibrateConfig& config, const ModelShape& shape, FileSystem& files,
                             const CancelFlag* cancel) {
  const v1::DataConfig& data = config.data();
  if (data.paths_size() == 0) {
    return Error(Code::kInvalidArgument, "config.missing_field", "data.paths: must be given: a list of files");
  }
  if (const int width = bytes_per_token(data.paths(0)); width > 0) {
    if (data.paths_size() > 1) {
      return Error(Code::kInvalidArgument, "config.conflict", "data.paths: give one file of token ids");
    }
    return read_token_file(files, data.paths(0), width, static_cast<int32_t>(shape.vocab));
  }
  INVAR_ASSIGN(const std::shared_ptr<const Tokenizer> tokenizer, tokenizer_of(config, files));
  INVAR_ASSIGN(const TokenizeOptions options, tokenize_options_of(data, files));
  INVAR_ASSIGN(TokenizedText text, tokenize_files(files, {data.paths().begin(), data.paths().end()}, options,
                                                  *tokenizer, shape.vocab, cancel));
  return std::move(text.tokens);
}

}  // namespace

Result<CalibrationTokens> CalibrationTokens::read(const v1::CalibrateConfig& config, bool length_given,
                                                  const ModelShape& shape, FileSystem& files,
                                                  const CancelFlag* cancel) {
  INVAR_ASSIGN(TokenBuffer ids, read_ids(config, shape, files, cancel));
  int64_t length = config.data().sequence_length();
  if (length_given && length > shape.max_positions) {
    return Error(
        Code::kInvalidArgument, "calibrate.sequence_too_long",
        cat("data.sequence_length: ", length, " is longer than the model's ", shape.max_positions, " positions"));
  }
  if (!length_given) length = std::max<int64_t>(1, std::min({length, shape.max_positions, ids.size() - 1}));
  const Packing packing =
      config.data().packing() == v1::PACKING_DOCUMENTS ? Packing::kDocuments : Packing::kConcatenated;
  INVAR_ASSIGN(Sequences sequences, Sequences::create(std::make_shared<TokenBuffer>(std::move(ids)),
                                                      {.length = length, .packing = packing}));
  const int64_t count = std::min(sequences.training(), (config.max_tokens() + length - 1) / length);
  return CalibrationTokens(std::make_shared<const Sequences>(std::move(sequences)), count);
}

}  // namespace invar
