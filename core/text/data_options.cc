#include "core/text/data_options.h"

namespace invar {

Result<TokenizeOptions> tokenize_options_of(const v1::DataConfig& config, FileSystem& files) {
  constexpr int64_t kMaxTemplateBytes = 16 << 20;
  TokenizeOptions options;
  options.documents.text_key = config.text_key();
  switch (config.format()) {
    case v1::DATA_FORMAT_TEXT: options.documents.format = TextFormat::kText; break;
    case v1::DATA_FORMAT_TOKENS: options.token_files = true; break;
    case v1::DATA_FORMAT_JSONL: options.documents.format = TextFormat::kJsonl; break;
    case v1::DATA_FORMAT_MESSAGES: options.format = ExampleFormat::kMessages; break;
    case v1::DATA_FORMAT_PROMPT_COMPLETION: options.format = ExampleFormat::kPromptCompletion; break;
    case v1::DATA_FORMAT_ALPACA: options.format = ExampleFormat::kAlpaca; break;
    case v1::DATA_FORMAT_SHAREGPT: options.format = ExampleFormat::kShareGpt; break;
    case v1::DATA_FORMAT_INPUT_IDS: options.format = ExampleFormat::kTokens; break;
    default: break;
  }
  if (options.format != ExampleFormat::kAuto) options.documents.format = TextFormat::kJsonl;
  options.loss = config.loss() == v1::LOSS_ON_ALL          ? LossOn::kAll
                 : config.loss() == v1::LOSS_ON_COMPLETION ? LossOn::kCompletion
                                                           : LossOn::kAuto;
  options.weights.assign(config.weights().begin(), config.weights().end());
  options.weight_seed = config.shuffle_seed();
  if (!config.chat_template().empty()) {
    INVAR_ASSIGN(options.chat_template, read_text(files, config.chat_template(), kMaxTemplateBytes));
  }
  return options;
}

SequenceOptions sequence_options_of(const v1::DataConfig& config, const TokenizedText& text) {
  SequenceOptions options;
  options.length = config.sequence_length();
  switch (config.packing()) {
    case v1::PACKING_DOCUMENTS: options.packing = Packing::kDocuments; break;
    case v1::PACKING_CONCATENATED: options.packing = Packing::kConcatenated; break;
    case v1::PACKING_WHOLE: options.packing = Packing::kWhole; break;
    default: options.packing = text.has_records ? Packing::kWhole : Packing::kConcatenated; break;
  }
  options.truncation = config.truncation() == v1::TRUNCATION_KEEP_END ? Truncation::kKeepEnd
                       : config.truncation() == v1::TRUNCATION_DROP   ? Truncation::kDrop
                       : config.truncation() == v1::TRUNCATION_REFUSE ? Truncation::kRefuse
                                                                      : Truncation::kKeepStart;
  return options;
}

std::string packing_warning(const Sequences& sequences, const TokenBuffer& tokens,
                            const std::vector<std::string>& paths) {
  const auto& counts = sequences.counts();
  std::string warning;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) warning += cat(warning.empty() ? "" : ", ", count, " ", what);
  };
  add(counts.truncated, "documents cut to the sequence length");
  add(counts.dropped, "documents dropped because they are longer");
  add(counts.masked, "documents left out because no token of them is trained");
  if (counts.masked == 0) return warning;
  for (size_t i = 0; i < counts.masked_samples.size(); ++i) {
    warning += cat(i == 0 ? " (" : ", ", document_source(tokens, paths, static_cast<size_t>(counts.masked_samples[i])));
  }
  return warning + (static_cast<int64_t>(counts.masked_samples.size()) < counts.masked ? ", ...)" : ")");
}

}  // namespace invar
