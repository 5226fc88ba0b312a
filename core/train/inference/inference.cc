#include "core/train/inference/inference.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/model/generate.h"
#include "core/model/weights_folder.h"
#include "core/text/data_options.h"
#include "core/text/sequences.h"
#include "core/text/token_buffer.h"
#include "core/train/inference/quantized_weights.h"

namespace invar {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Rows of the activation arena unless the host asks for longer sequences: prompts are read in pieces of this size.
constexpr int64_t kUsualTokens = 2048;

// Bytes of the character that `lead` begins; 0 for a byte that begins none.
size_t character_size(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
}

bool well_formed(std::string_view text) {
  Utf8Checker checker;
  return checker.feed(text) && checker.finish();
}

}  // namespace

std::string replace_malformed(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t size = character_size(static_cast<unsigned char>(text[i]));
    if (size > 0 && i + size <= text.size() && well_formed(text.substr(i, size))) {
      out += text.substr(i, size);
      i += size;
    } else {
      out += "\xEF\xBF\xBD";
      ++i;
    }
  }
  return out;
}

size_t whole_characters(std::string_view text) {
  // An unfinished character is at most three bytes: its lead and what has come of the rest.
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    return character_size(byte) > back ? text.size() - back : text.size();
  }
  return text.size();
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const v1::LoadConfig& config,
                                                       const InferenceEnvironment& environment) {
  FileSystem& files = *environment.files;
  if (config.recipe() != v1::RECIPE_FP32 && config.recipe() != v1::RECIPE_BF16) {
    return Error(Code::kInvalidArgument, "model.recipe",
                 "recipe: a loaded model runs in fp32 or bf16; FP8 folders are decoded while loading");
  }
  std::unique_ptr<LoadedModel> loaded(new LoadedModel);
  loaded->path_ = config.path();
  if (!files.is_directory(config.path())) {
    return Error(Code::kNotFound, "model.not_found", cat(config.path(), ": no such model folder"));
  }
  INVAR_ASSIGN(const ModelShape shape, read_model_shape(files, config.path()));
  INVAR_ASSIGN(loaded->tokenizer_,
               load_tokenizer(files, config.tokenizer_path().empty() ? config.path() : config.tokenizer_path()));
  if (loaded->tokenizer_->vocab_size() > shape.vocab) {
    return Error(Code::kInvalidArgument, "text.vocabulary_mismatch",
                 cat(config.path(), ": the tokenizer has ", loaded->tokenizer_->vocab_size(), " tokens, the model ",
                     shape.vocab));
  }
  ModelOptions options;
  options.precision.recipe = static_cast<Recipe>(config.recipe());  // same numbers
  options.trainable = false;
  const int64_t wanted = config.max_sequence_length();
  if (wanted > shape.max_positions) {
    return Error(
        Code::kInvalidArgument, "config.out_of_range",
        cat("max_sequence_length: ", wanted, " is longer than the model's ", shape.max_positions, " positions"));
  }
  options.max_positions = wanted > 0 ? wanted : shape.max_positions;
  options.max_tokens = wanted > 0 ? wanted : std::min(kUsualTokens, shape.max_positions);
  INVAR_ASSIGN(auto device, Device::open(config.device(), environment.pool, environment.device));
  INVAR_ASSIGN(auto weights, QuantizedWeights::open(files, config.path(), shape));
  INVAR_TRY(check_cancel(environment.cancel));
  INVAR_ASSIGN(loaded->model_, Model::create(std::move(device), shape, options));
  CancellableWeights stoppable(*weights, environment.cancel);
  INVAR_TRY(loaded->model_->load(stoppable));
  return loaded;
}

v1::ModelInfo LoadedModel::info() const { return describe_model(*model_, tokenizer_.get(), path_); }

v1::ModelInfo describe_model(Model& model, const Tokenizer* tokenizer, const std::string& path) {
  const ModelShape& shape = model.shape();
  v1::ModelInfo info;
  if (!path.empty()) info.set_path(path);
  info.set_family(shape.family);
  info.set_parameters(parameter_count(shape));
  auto* config = info.mutable_shape();
  config->set_family(shape.family);
  config->set_vocab_size(shape.vocab);
  config->set_hidden_size(shape.hidden);
  config->set_num_hidden_layers(shape.layers);
  config->set_num_attention_heads(shape.heads);
  config->set_num_key_value_heads(shape.kv_heads);
  config->set_head_dim(shape.head_dim);
  config->set_intermediate_size(shape.intermediate);
  config->set_max_position_embeddings(shape.max_positions);
  config->set_rms_norm_eps(shape.norm_eps);
  config->set_rope_theta(shape.rope_theta);
  config->set_tie_word_embeddings(shape.tie_embeddings);
  if (tokenizer != nullptr) info.set_tokenizer(cat(tokenizer->vocab_size(), " tokens"));
  info.set_recipe(static_cast<v1::Recipe>(model.recipe()));
  return info;
}

Result<v1::EvalReport> evaluate_text(Model& model, const Tokenizer& tokenizer, const v1::EvalConfig& config,
                                     FileSystem& files, const EvaluateHooks& hooks) {
  const v1::DataConfig& data = config.data();
  if (data.paths_size() == 0) {
    return Error(Code::kInvalidArgument, "config.missing_field", "data.paths: must be given: a list of files");
  }
  const int64_t most = std::min(model.options().max_tokens, model.shape().max_positions);
  if (data.sequence_length() > most) {
    return Error(Code::kInvalidArgument, "eval.sequence_too_long",
                 cat("data.sequence_length: ", data.sequence_length(), " is longer than the ", most,
                     " tokens this model was made for"));
  }
  const auto start = Clock::now();
  INVAR_ASSIGN(const TokenizeOptions reading, tokenize_options_of(data, files));
  INVAR_ASSIGN(auto text, tokenize_files(files, {data.paths().begin(), data.paths().end()}, reading, tokenizer,
                                         model.shape().vocab, hooks.cancel));
  const SequenceOptions cut = sequence_options_of(data, text);
  const int64_t bytes = text.bytes, all_tokens = text.tokens.size();
  INVAR_ASSIGN(const Sequences sequences,
               Sequences::create(std::make_shared<TokenBuffer>(std::move(text.tokens)), cut));
  int64_t count = sequences.training();
  if (config.max_tokens() > 0) {
    count = std::min(count, (config.max_tokens() + sequences.length() - 1) / sequences.length());
  }
  const int64_t at_once = std::clamp(model.options().max_tokens / sequences.length(), int64_t{1}, config.micro_batch());
  LossSum total;
  TokenBatch batch;
  for (int64_t first = 0; first < count; first += at_once) {
    INVAR_TRY(check_cancel(hooks.cancel));
    batch.clear();
    for (int64_t i = first; i < std::min(count, first + at_once); ++i) sequences.append_training(i, &batch);
    INVAR_ASSIGN(
        const LossSum part,
        model.evaluate({.ids = batch.ids, .targets = batch.targets, .offsets = batch.offsets, .positions = {}}));
    total.sum += part.sum;
    total.count += part.count;
    if (hooks.progress)
      hooks.progress(std::min(count, first + at_once) * sequences.length(), count * sequences.length());
  }
  if (total.count == 0) {
    return Error(Code::kInvalidArgument, "text.empty", "no token of the text has a loss");
  }
  v1::EvalReport report;
  const double loss = total.sum / static_cast<double>(total.count);
  report.set_loss(loss);
  report.set_perplexity(std::exp(loss));
  report.set_tokens(total.count);
  report.set_sequences(count);
  // Nats a token, times tokens a byte of the whole text, in bits.
  if (bytes > 0) {
    report.set_bits_per_byte(loss / std::log(2.0) * static_cast<double>(all_tokens) / static_cast<double>(bytes));
  }
  report.set_seconds(seconds_since(start));
  report.set_tokens_per_second(static_cast<double>(total.count) / std::max(report.seconds(), 1e-9));
  return report;
}

Result<v1::GenerateReport> generate_text(Model& model, const Tokenizer& tokenizer, const v1::GenerateConfig& config,
                                         const GenerateHooks& hooks) {
  std::vector<int32_t> prompt(config.prompt_ids().begin(), config.prompt_ids().end());
  if (!prompt.empty() && !config.prompt().empty()) {
    return Error(Code::kInvalidArgument, "config.conflict", "prompt and prompt_ids: give one of them");
  }
  if (prompt.empty()) prompt = tokenizer.encode(config.prompt(), {.add_special = true});
  // Text that continues nothing begins where documents begin.
  if (prompt.empty() && tokenizer.bos_id() >= 0) prompt.push_back(tokenizer.bos_id());
  if (prompt.empty() && tokenizer.eos_id() >= 0) prompt.push_back(tokenizer.eos_id());
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= model.shape().vocab) {
      return Error(Code::kInvalidArgument, "tokenizer.id_out_of_range",
                   cat("prompt_ids[", i, "]: ", prompt[i], " is not in [0, ", model.shape().vocab, ")"));
    }
  }
  GenerateOptions options;
  options.max_new_tokens = config.max_tokens();
  options.sampling = {
      .temperature = config.temperature(), .top_k = config.top_k(), .top_p = config.top_p(), .seed = config.seed()};
  if (config.stop_at_end()) {
    for (const int64_t id : model.shape().eos_tokens) options.stop_tokens.push_back(static_cast<int32_t>(id));
    if (options.stop_tokens.empty() && tokenizer.eos_id() >= 0) options.stop_tokens.push_back(tokenizer.eos_id());
  }
  options.cancel = hooks.cancel;
  std::vector<int32_t> ids;
  size_t given = 0;  // bytes of the text that the host has
  if (hooks.token) {
    options.on_token = [&](int32_t id) {
      ids.push_back(id);
      // A token alone may be part of a character, or read differently without the ones before it.
      const auto text = tokenizer.decode(ids, true);
      const std::string_view all = text.ok() ? std::string_view(text.value()) : std::string_view();
      const size_t whole = std::max(given, whole_characters(all));
      const std::string piece = replace_malformed(all.substr(std::min(given, all.size()), whole - given));
      given = whole;
      return hooks.token(id, static_cast<int64_t>(ids.size()) - 1, piece);
    };
  }
  INVAR_ASSIGN(const GenerateResult result, generate(model, prompt, options));
  if (result.reason == StopReason::kCancelled) {
    return Error(Code::kCancelled, "cancelled", cat("cancelled after ", result.tokens.size(), " tokens"));
  }
  INVAR_ASSIGN(const std::string text, tokenizer.decode(result.tokens, true));
  v1::GenerateReport report;
  report.set_text(replace_malformed(text));
  report.mutable_ids()->Add(result.tokens.begin(), result.tokens.end());
  report.set_prompt_tokens(static_cast<int64_t>(prompt.size()));
  report.set_finish_reason(result.reason == StopReason::kStopToken  ? v1::FINISH_REASON_END_TOKEN
                           : result.reason == StopReason::kCallback ? v1::FINISH_REASON_CALLBACK
                                                                    : v1::FINISH_REASON_LENGTH);
  report.set_seconds(result.prefill_seconds + result.decode_seconds);
  // The first token comes from the prompt's pass.
  const auto decoded = static_cast<double>(result.tokens.size()) - 1;
  if (decoded > 0) report.set_tokens_per_second(decoded / std::max(result.decode_seconds, 1e-9));
  return report;
}

}  // namespace invar
