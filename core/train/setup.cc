#include "core/train/setup.h"

#include <algorithm>

#include "core/model/weight_source.h"
#include "core/text/byte_tokenizer.h"
#include "core/text/data_options.h"
#include "core/text/token_buffer.h"
#include "core/train/inference/quantized_weights.h"
#include "core/train/learner.h"

namespace invar {
namespace {

constexpr int64_t kMaxConfigBytes = 16 << 20;

Result<ModelShape> shape_from_file(const std::string& path, FileSystem& files) {
  INVAR_ASSIGN(const std::string text, read_text(files, path, kMaxConfigBytes));
  return parse_model_config(text, path);
}

}  // namespace

Result<PrecisionPlan> precision_plan_of(const v1::PrecisionConfig& config) {
  PrecisionPlan plan;
  plan.recipe = static_cast<Recipe>(config.recipe());  // same numbers
  plan.keep_bf16.assign(config.keep_bf16().begin(), config.keep_bf16().end());
  plan.first_layers_bf16 = config.keep_first_layers();
  plan.last_layers_bf16 = config.keep_last_layers();
  plan.power_of_two_scales = config.power_of_two_scales();
  if (plan.recipe == Recipe::kFp8Block && !plan.power_of_two_scales) {
    return Error(Code::kInvalidArgument, "config.unsupported",
                 "precision.power_of_two_scales: false is not possible with recipe fp8_block: scales inside a sum "
                 "over blocks must fold exactly into the operand");
  }
  return plan;
}

LadderOptions ladder_options_of(const v1::PrecisionConfig& config, int64_t total_steps) {
  LadderOptions options;
  options.recipe = static_cast<Recipe>(config.recipe());
  options.fixed = !config.has_ladder();
  if (options.fixed) return options;
  const v1::LadderConfig& ladder = config.ladder();
  options.warmup_steps = ladder.warmup_steps();
  options.window = ladder.window();
  options.spike_z = ladder.spike_z();
  options.spike_ratio = ladder.spike_ratio();
  options.cooldown_steps = ladder.cooldown_steps();
  options.max_fallbacks = ladder.max_fallbacks();
  options.final_steps = ladder.final_steps();
  options.total_steps = total_steps;
  return options;
}

AdamWOptions adamw_options_of(const v1::OptimizerConfig& config) {
  return {.beta1 = config.beta1(), .beta2 = config.beta2(), .eps = config.eps(), .weight_decay = config.weight_decay()};
}

Schedule schedule_of(const v1::OptimizerConfig& optimizer, const v1::ScheduleConfig& config, int64_t total_steps) {
  Schedule schedule;
  schedule.kind = config.kind() == v1::SCHEDULE_KIND_CONSTANT ? ScheduleKind::kConstant
                  : config.kind() == v1::SCHEDULE_KIND_LINEAR ? ScheduleKind::kLinear
                                                              : ScheduleKind::kCosine;
  schedule.peak = optimizer.lr();
  schedule.warmup_steps = config.warmup_steps();
  schedule.end_step = config.decay_steps() > 0 ? config.decay_steps() : total_steps;
  schedule.min_ratio = config.min_ratio();
  return schedule;
}

Result<std::shared_ptr<const Tokenizer>> tokenizer_of(const v1::TokenizerConfig& config,
                                                      const std::string& model_folder, FileSystem& files) {
  switch (config.kind()) {
    case v1::TOKENIZER_KIND_BYTE: break;
    case v1::TOKENIZER_KIND_FILE:
      if (config.path().empty()) {
        return Error(Code::kInvalidArgument, "config.missing_field",
                     "data.tokenizer.path: needed when data.tokenizer.kind is \"file\"");
      }
      return load_tokenizer(files, config.path());
    default:
      if (!config.path().empty()) return load_tokenizer(files, config.path());
      for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
        if (!model_folder.empty() && files.exists(join_path(model_folder, name))) {
          return load_tokenizer(files, model_folder);
        }
      }
      break;
  }
  return std::shared_ptr<const Tokenizer>(std::make_shared<ByteTokenizer>());
}

Result<ModelShape> shape_of(const v1::ModelConfig& config, const Tokenizer* tokenizer, FileSystem& files) {
  if (!config.path().empty()) return shape_from_file(join_path(config.path(), "config.json"), files);
  if (!config.config_path().empty()) return shape_from_file(config.config_path(), files);
  if (find_family(config.family()) == nullptr) {
    return Error(Code::kInvalidArgument, "config.unknown_model_type",
                 cat("model.family: \"", config.family(), "\" is not known; supported: ", supported_families()));
  }
  ModelShape shape;
  shape.family = config.family();
  shape.vocab = config.vocab_size();
  if (shape.vocab == 0 && tokenizer != nullptr) shape.vocab = tokenizer->vocab_size();
  if (tokenizer != nullptr && shape.vocab < tokenizer->vocab_size()) {
    return Error(Code::kInvalidArgument, "text.vocabulary_mismatch",
                 cat("model.vocab_size: ", shape.vocab, " is less than the tokenizer's ", tokenizer->vocab_size(),
                     " tokens; 0 takes the tokenizer's size"));
  }
  shape.hidden = config.hidden_size();
  shape.layers = config.num_hidden_layers();
  shape.heads = config.num_attention_heads();
  shape.kv_heads = config.num_key_value_heads() > 0 ? config.num_key_value_heads() : shape.heads;
  if (config.head_dim() == 0 && shape.hidden % shape.heads != 0) {
    return Error(Code::kInvalidArgument, "config.out_of_range",
                 cat("model.hidden_size: ", shape.hidden, " is not a multiple of model.num_attention_heads ",
                     shape.heads, "; set model.head_dim"));
  }
  shape.head_dim = config.head_dim() > 0 ? config.head_dim() : shape.hidden / shape.heads;
  shape.intermediate = config.intermediate_size();
  shape.max_positions = config.max_position_embeddings();
  shape.norm_eps = config.rms_norm_eps();
  shape.rope_theta = config.rope_theta();
  shape.tie_embeddings = config.tie_word_embeddings();
  if (tokenizer != nullptr) {
    shape.bos_token = tokenizer->bos_id();
    if (tokenizer->eos_id() >= 0) shape.eos_tokens = {tokenizer->eos_id()};
  }
  shape = complete_shape(std::move(shape));
  INVAR_TRY(validate_shape(shape, "model"));
  return shape;
}

Status load_first_weights(const v1::ModelConfig& config, uint64_t seed, std::shared_ptr<ThreadPool> pool,
                          FileSystem& files, Learner* learner, const CancelFlag* cancel) {
  if (config.path().empty()) {
    RandomWeights source(seed, std::move(pool), static_cast<float>(config.initializer_range()));
    CancellableWeights stoppable(source, cancel);
    return learner->load(stoppable);
  }
  INVAR_ASSIGN(auto source, QuantizedWeights::open(files, config.path(), learner->model().shape()));
  CancellableWeights stoppable(*source, cancel);
  return learner->load(stoppable);
}

Result<TrainingData> training_data_of(const v1::DataConfig& config, const Tokenizer& tokenizer, int64_t vocab,
                                      FileSystem& files, const CancelFlag* cancel) {
  INVAR_ASSIGN(const TokenizeOptions reading, tokenize_options_of(config, files));
  TrainingData data;
  if (config.eval_paths_size() > 0) {
    TokenizeOptions whole = reading;
    whole.weights.clear();  // they belong to the training files
    INVAR_ASSIGN(auto text, tokenize_files(files, {config.eval_paths().begin(), config.eval_paths().end()}, whole,
                                           tokenizer, vocab, cancel));
    const SequenceOptions options = sequence_options_of(config, text);
    INVAR_ASSIGN(auto sequences, Sequences::create(std::make_shared<TokenBuffer>(std::move(text.tokens)), options));
    data.evaluation = std::make_shared<Sequences>(std::move(sequences));
  }
  INVAR_ASSIGN(auto text, tokenize_files(files, {config.paths().begin(), config.paths().end()}, reading, tokenizer,
                                         vocab, cancel));
  SequenceOptions options = sequence_options_of(config, text);
  if (config.eval_paths_size() == 0) options.heldout_fraction = config.heldout_fraction();
  data.documents = text.documents;
  data.empty_documents = text.empty_documents;
  data.tokens = text.tokens.size();
  data.trained_tokens = text.trained_tokens;
  data.digest = text.tokens.digest();
  const auto tokens = std::make_shared<const TokenBuffer>(std::move(text.tokens));
  INVAR_ASSIGN(auto sequences, Sequences::create(tokens, options));
  if (const std::string warning = packing_warning(sequences, *tokens, text.paths); !warning.empty()) {
    data.warnings.push_back(warning);
  }
  data.training = std::make_shared<Sequences>(std::move(sequences));
  return data;
}

}  // namespace invar
