#include "core/text/preview.h"

#include <algorithm>

#include "core/text/data_options.h"
#include "core/text/utf8.h"

namespace invar {
namespace {

void add_sample(const TokenizedText& text, size_t index, int64_t length, const Tokenizer& tokenizer,
                v1::PreviewReport* report) {
  const auto& starts = text.tokens.document_starts();
  const int64_t begin = starts[index];
  const int64_t end = index + 1 < starts.size() ? starts[index + 1] : text.tokens.size();
  std::vector<int32_t> ids(static_cast<size_t>(std::min(end - begin, length)));
  text.tokens.copy(begin, ids);
  auto* sample = report->add_samples();
  sample->set_source(document_source(text.tokens, text.paths, index));
  sample->set_tokens(end - begin);
  for (size_t i = 0; i < ids.size(); ++i) {
    auto* token = sample->add_shown();
    token->set_id(ids[i]);
    const auto one = tokenizer.decode({&ids[i], 1}, false);
    const std::string name = tokenizer.token_of(ids[i]);
    token->set_text(lossy_utf8(one.ok() && !one.value().empty() ? one.value() : name));
    token->set_trained(text.tokens.trained(begin + static_cast<int64_t>(i)));
  }
}

}  // namespace

Result<v1::PreviewReport> preview_data(const v1::PreviewConfig& config, const Tokenizer& tokenizer, FileSystem& files,
                                       const CancelFlag* cancel) {
  const v1::DataConfig& data = config.data();
  if (data.paths_size() == 0) {
    return Error(Code::kInvalidArgument, "config.missing_field", "data.paths: must be given: a list of files");
  }
  INVAR_ASSIGN(const TokenizeOptions options, tokenize_options_of(data, files));
  INVAR_ASSIGN(TokenizedText text, tokenize_files(files, {data.paths().begin(), data.paths().end()}, options, tokenizer,
                                                  tokenizer.vocab_size(), cancel));
  v1::PreviewReport report;
  report.set_documents(text.documents);
  report.set_empty_documents(text.empty_documents);
  report.set_tokens(text.tokens.size());
  report.set_trained_tokens(text.trained_tokens);
  const auto shown = std::min<size_t>(static_cast<size_t>(config.samples()), text.tokens.document_starts().size());
  for (size_t i = 0; i < shown; ++i) add_sample(text, i, config.max_tokens(), tokenizer, &report);
  SequenceOptions cut = sequence_options_of(data, text);
  cut.heldout_fraction = data.eval_paths_size() > 0 ? 0 : data.heldout_fraction();
  const auto tokens = std::make_shared<const TokenBuffer>(std::move(text.tokens));
  const auto sequences = Sequences::create(tokens, cut);
  if (!sequences.ok()) {
    report.add_warnings(sequences.status().message());
    return report;
  }
  report.set_sequences(sequences->training());
  report.set_heldout_sequences(sequences->heldout());
  const std::string warning = packing_warning(*sequences, *tokens, text.paths);
  if (!warning.empty()) report.add_warnings(warning);
  return report;
}

}  // namespace invar
