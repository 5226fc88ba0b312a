// Model families as data: what a config.json means, which tensors a checkpoint holds and how they are named.
//
//   INVAR_ASSIGN(ModelShape shape, parse_model_config(text, "model/config.json"));
//   for (const ParameterSpec& p : parameters_of(shape)) ...
//
// A family is one file that fills a Family and one line in the table of family.cc. What a family does not
// support is refused by its config key, never ignored. Thread rule: pure functions and constants.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace invar {

enum class RopeKind : int { kPlain, kLinear, kLlama3, kYarn };

// How the frequencies of rotary positions are stretched for long contexts. linear: Chen et al. 2023; llama3:
// Llama 3.1's smooth step between wavelengths; yarn: Peng et al. 2023.
struct RopeScaling {
  RopeKind kind = RopeKind::kPlain;
  double factor = 1;
  int64_t original_positions = 0;                // llama3, yarn: the context of pre-training
  double low_frequency = 1, high_frequency = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;          // yarn
  double attention_factor = 1;                   // yarn: multiplies cosines and sines
  bool truncate = true;                          // yarn: whole numbers bound the ramp
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

// The function of a gated MLP's gate.
enum class Gate : int { kSilu, kGeluTanh };

// The numbers that define a model. Fill it by hand or from a config.json; check with validate_shape.
struct ModelShape {
  std::string family = "llama";
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;      // need not be hidden / heads
  int64_t intermediate = 0;  // width of the gated MLP
  int64_t max_positions = 2048;
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  double local_rope_theta = 0;  // of layers with a window; 0: as the others, else plain with this base
  bool tie_embeddings = false;  // the output head is the embedding table
  bool qkv_bias = false;        // biases of query, key and value
  bool query_key_norm = false;  // each head of query and key is normalised before it is rotated
  bool branch_norms = false;    // what attention and MLP give is normalised before it joins the stream
  double norm_gain_offset = 0;  // added to stored gains
  double embedding_scale = 1;   // multiplies looked up embeddings
  double attention_scale = 0;   // multiplies scores; 0: 1 / sqrt(head_dim)
  double attention_soft_cap = 0, logit_soft_cap = 0;  // cap * tanh(x / cap); 0: none
  Gate gate = Gate::kSilu;
  std::vector<int64_t> windows;  // by layer, the last so many keys are seen, 0 for all; empty: all in every layer
  int64_t bos_token = -1;        // -1: none
  std::vector<int64_t> eos_tokens;

  int64_t query_size() const { return heads * head_dim; }
  int64_t kv_size() const { return kv_heads * head_dim; }
  int64_t window(int64_t layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

enum class ParameterRole : int {
  kEmbedding,
  kAttentionNorm,
  kQuery,
  kKey,
  kValue,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kQueryNorm,
  kKeyNorm,
  kAttentionOut,
  kAttentionBranchNorm,
  kMlpNorm,
  kGate,
  kUp,
  kDown,
  kMlpBranchNorm,
  kFinalNorm,
  kHead,
};

enum class ParameterKind : int {
  kMatrix,  // [outputs, inputs]; the embedding table counts as one
  kVector,  // norm gains, biases
};

// One logical tensor of a checkpoint.
struct ParameterSpec {
  std::string name;  // Hugging Face spelling
  std::vector<int64_t> shape;
  ParameterRole role = ParameterRole::kEmbedding;
  int64_t layer = -1;  // -1 outside the layers
  ParameterKind kind = ParameterKind::kMatrix;
  std::vector<std::string> aliases;  // other names of the same tensor: the head of a tied model
  float initial = 1;                 // a vector's elements at a random start

  bool decays() const { return kind == ParameterKind::kMatrix; }
  int64_t count() const;
};

struct Family {
  std::string_view name;  // model_type in config.json
  std::string_view architecture;
  // `config` is the text of a JSON object that was parsed before; `path` goes into messages.
  Result<ModelShape> (*parse)(std::string_view config, std::string_view path);
  // Sets what the family fixes in a shape whose sizes are given: for random starts. May be null.
  void (*complete)(ModelShape& shape);
  std::string (*write)(const ModelShape& shape, std::string_view torch_dtype);
  std::vector<ParameterSpec> (*parameters)(const ModelShape& shape);
};

std::span<const Family* const> families();
// Null when unknown.
const Family* find_family(std::string_view model_type);
// "llama, ...": for messages.
std::string supported_families();

// From the text of a config.json. Errors name the file, key, value and expectation; reasons: config.invalid_json,
// config.missing_key, config.wrong_type, config.out_of_range, config.unknown_model_type, config.unsupported.
Result<ModelShape> parse_model_config(std::string_view text, std::string_view path);
// A config.json that transformers loads; torch_dtype: "bfloat16", "float32" or "float16".
Result<std::string> write_model_config(const ModelShape& shape, std::string_view torch_dtype);
// The shape with what its family fixes, for random starts whose sizes are chosen by hand.
ModelShape complete_shape(ModelShape shape);
// What holds for every family: sizes positive, heads divisible by kv_heads, head_dim even. `where` names the source.
Status validate_shape(const ModelShape& shape, std::string_view where);
// In checkpoint order; query, key, value and gate, up of a layer follow one another. Needs a valid shape.
std::vector<ParameterSpec> parameters_of(const ModelShape& shape);
// Elements over all parameters, a tied tensor once.
int64_t parameter_count(const ModelShape& shape);

}  // namespace invar
