// From the messages of a TrainConfig to the types of the core. Configs are resolved: every default is filled in.
// Thread rule: pure functions over their arguments and files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"
#include "core/family/family.h"
#include "core/optim/adamw.h"
#include "core/optim/schedule.h"
#include "core/precision/ladder.h"
#include "core/precision/recipe.h"
#include "core/text/sequences.h"
#include "core/text/tokenizer.h"
#include "proto/invar/v1/train.pb.h"

namespace invar {

Result<PrecisionPlan> precision_plan_of(const v1::PrecisionConfig& config);
LadderOptions ladder_options_of(const v1::PrecisionConfig& config, int64_t total_steps);
AdamWOptions adamw_options_of(const v1::OptimizerConfig& config);
Schedule schedule_of(const v1::OptimizerConfig& optimizer, const v1::ScheduleConfig& schedule, int64_t total_steps);

// `model_folder`: where an automatic choice looks for a tokenizer.json; may be empty.
Result<std::shared_ptr<const Tokenizer>> tokenizer_of(const v1::TokenizerConfig& config,
                                                      const std::string& model_folder, FileSystem& files);

// The shape a ModelConfig means. tokenizer: for vocab_size 0; may be null when the shape comes from a config.json.
Result<ModelShape> shape_of(const v1::ModelConfig& config, const Tokenizer* tokenizer, FileSystem& files);

class Learner;

// Random weights by the seed, or those of model.path; FP8 folders are decoded.
Status load_first_weights(const v1::ModelConfig& config, uint64_t seed, std::shared_ptr<ThreadPool> pool,
                          FileSystem& files, Learner* learner, const CancelFlag* cancel);

struct TrainingData {
  std::shared_ptr<const Sequences> training;    // with the held-out tail, unless `evaluation` has its own files
  std::shared_ptr<const Sequences> evaluation;  // of data.eval_paths; null without
  uint64_t digest = 0;                          // of the training tokens
  int64_t tokens = 0, trained_tokens = 0, documents = 0, empty_documents = 0;
  std::vector<std::string> warnings;  // documents cut, dropped or without a trained token
};

// Reads, encodes and packs the files of `config` for a model of `vocab` rows.
Result<TrainingData> training_data_of(const v1::DataConfig& config, const Tokenizer& tokenizer, int64_t vocab,
                                      FileSystem& files, const CancelFlag* cancel);

}  // namespace invar
