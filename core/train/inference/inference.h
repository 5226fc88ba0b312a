// A model loaded for use, and what one does with a model and a tokenizer: score text, generate text.
//
//   INVAR_ASSIGN(auto loaded, LoadedModel::load(config, environment));
//   INVAR_ASSIGN(auto report, evaluate_text(loaded->model(), loaded->tokenizer(), eval_config, files, {}));
//
// Configs are resolved: checked, every default filled in.
// Thread rule: one thread at a time; cancel flags may be set from anywhere.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/device/device.h"
#include "core/model/model.h"
#include "core/text/tokenizer.h"
#include "invar/v1/model.pb.h"
#include "invar/v1/report.pb.h"

namespace invar {

struct InferenceEnvironment {
  std::shared_ptr<ThreadPool> pool;
  FileSystem* files = nullptr;
  DeviceOptions device = {};
  const CancelFlag* cancel = nullptr;
};

class LoadedModel {
 public:
  // Reads config.json, weights (FP8 folders are decoded) and tokenizer of a folder. A recipe other than fp32 and bf16
  // is "model.recipe"; a tokenizer that is missing or unsupported is an error.
  static Result<std::unique_ptr<LoadedModel>> load(const v1::LoadConfig& config,
                                                   const InferenceEnvironment& environment);

  Model& model() { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  v1::ModelInfo info() const;

 private:
  LoadedModel() = default;
  std::string path_;
  std::unique_ptr<Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

// What there is to say about any model; `path` may be empty.
v1::ModelInfo describe_model(Model& model, const Tokenizer* tokenizer, const std::string& path);

struct EvaluateHooks {
  const CancelFlag* cancel = nullptr;
  std::function<void(int64_t tokens, int64_t total)> progress = {};
};

// Mean token loss of `config.data`. "eval.sequence_too_long" when a sequence is longer than the model was made for.
Result<v1::EvalReport> evaluate_text(Model& model, const Tokenizer& tokenizer, const v1::EvalConfig& config,
                                     FileSystem& files, const EvaluateHooks& hooks);

struct GenerateHooks {
  const CancelFlag* cancel = nullptr;
  // A new token and the whole characters it completes; false ends the text after it.
  std::function<bool(int32_t id, int64_t index, std::string_view text)> token = {};
};

// Cancelling is CANCELLED: there is no report then.
Result<v1::GenerateReport> generate_text(Model& model, const Tokenizer& tokenizer, const v1::GenerateConfig& config,
                                         const GenerateHooks& hooks);

// The text with every byte that is not part of well-formed UTF-8 replaced by U+FFFD.
std::string replace_malformed(std::string_view text);
// How much of `text` is whole characters: what follows is the unfinished start of one, or nothing.
size_t whole_characters(std::string_view text);

}  // namespace invar
