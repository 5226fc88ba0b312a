#include "core/family/llama.h"

#include <nlohmann/json.hpp>

#include "core/family/json_fields.h"

namespace invar {
namespace {

using nlohmann::json;

// Absent or equal to `required`; anything else changes what the model computes.
Status require_false(const Fields& fields, const char* key) {
  INVAR_ASSIGN(const bool value, fields.boolean_or(key, false));
  return value ? fields.unsupported(key, *fields.find(key), "false") : Status();
}

// Older files: rope_theta and rope_scaling. Newer ones: rope_parameters {rope_type, rope_theta}.
Result<double> rope_theta_of(const Fields& fields, std::string_view path) {
  INVAR_ASSIGN(double theta, fields.positive_number_or("rope_theta", 10000.0));
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json* value = fields.find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) return fields.wrong_type(key, *value, "an object");
    const Fields rope(*value, cat(path, ": ", key));
    for (const char* type_key : {"rope_type", "type"}) {
      INVAR_ASSIGN(const std::string type, rope.string_or(type_key, "default"));
      if (type != "default") return rope.unsupported(type_key, *rope.find(type_key), "\"default\"");
    }
    if (const json* factor = rope.find("partial_rotary_factor"); factor != nullptr && *factor != 1.0) {
      return rope.unsupported("partial_rotary_factor", *factor, "1");
    }
    INVAR_ASSIGN(theta, rope.positive_number_or("rope_theta", theta));
  }
  return theta;
}

// A number, or a list whose first is the principal one.
Result<std::vector<int64_t>> token_ids(const Fields& fields, const char* key) {
  std::vector<int64_t> ids;
  const json* value = fields.find(key);
  if (value == nullptr) return ids;
  const auto take = [&](const json& id) {
    if (!id.is_number_integer()) return false;
    ids.push_back(id.get<int64_t>());
    return true;
  };
  bool good = true;
  if (value->is_array()) {
    for (const json& id : *value) good = good && take(id);
  } else {
    good = take(*value);
  }
  if (!good) return fields.wrong_type(key, *value, "a token id or a list of them");
  return ids;
}

Result<ModelShape> parse_llama(std::string_view text, std::string_view path) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Fields fields(config, path);
  ModelShape shape;
  shape.family = "llama";
  INVAR_ASSIGN(shape.vocab, fields.positive("vocab_size"));
  INVAR_ASSIGN(shape.hidden, fields.positive("hidden_size"));
  INVAR_ASSIGN(shape.intermediate, fields.positive("intermediate_size"));
  INVAR_ASSIGN(shape.layers, fields.positive("num_hidden_layers"));
  INVAR_ASSIGN(shape.heads, fields.positive("num_attention_heads"));
  INVAR_ASSIGN(shape.kv_heads, fields.positive_or("num_key_value_heads", shape.heads));
  if (fields.find("head_dim") == nullptr && shape.hidden % shape.heads != 0) {
    return Error(Code::kInvalidArgument, "config.out_of_range",
                 cat(path, ": \"hidden_size\" is ", shape.hidden, ": not a multiple of \"num_attention_heads\" ",
                     shape.heads, ", and \"head_dim\" is not given"));
  }
  INVAR_ASSIGN(shape.head_dim, fields.positive_or("head_dim", std::max<int64_t>(1, shape.hidden / shape.heads)));
  INVAR_ASSIGN(shape.max_positions, fields.positive_or("max_position_embeddings", 2048));
  INVAR_ASSIGN(shape.norm_eps, fields.positive_number_or("rms_norm_eps", 1e-6));
  INVAR_ASSIGN(shape.rope_theta, rope_theta_of(fields, path));
  INVAR_ASSIGN(shape.tie_embeddings, fields.boolean_or("tie_word_embeddings", false));
  INVAR_ASSIGN(const std::vector<int64_t> bos, token_ids(fields, "bos_token_id"));
  if (!bos.empty()) shape.bos_token = bos[0];
  INVAR_ASSIGN(shape.eos_tokens, token_ids(fields, "eos_token_id"));

  INVAR_ASSIGN(const std::string activation, fields.string_or("hidden_act", "silu"));
  if (activation != "silu" && activation != "swish") {
    return fields.unsupported("hidden_act", *fields.find("hidden_act"), "\"silu\"");
  }
  INVAR_TRY(require_false(fields, "attention_bias"));
  INVAR_TRY(require_false(fields, "mlp_bias"));
  if (const json* dropout = fields.find("attention_dropout"); dropout != nullptr && *dropout != 0.0) {
    return fields.unsupported("attention_dropout", *dropout, "0");
  }
  for (const char* key : {"sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "num_local_experts"}) {
    if (const json* value = fields.find(key)) return fields.unsupported(key, *value, "null");
  }
  return shape;
}

std::string write_llama(const ModelShape& shape, std::string_view torch_dtype) {
  nlohmann::ordered_json config = {
      {"architectures", {kLlamaFamily.architecture}},
      {"model_type", "llama"},
      {"vocab_size", shape.vocab},
      {"hidden_size", shape.hidden},
      {"intermediate_size", shape.intermediate},
      {"num_hidden_layers", shape.layers},
      {"num_attention_heads", shape.heads},
      {"num_key_value_heads", shape.kv_heads},
      {"head_dim", shape.head_dim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", shape.max_positions},
      {"rms_norm_eps", shape.norm_eps},
      {"rope_theta", shape.rope_theta},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"mlp_bias", false},
      {"tie_word_embeddings", shape.tie_embeddings},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"torch_dtype", torch_dtype},
  };
  if (shape.bos_token >= 0) config["bos_token_id"] = shape.bos_token;
  if (shape.eos_tokens.size() == 1) config["eos_token_id"] = shape.eos_tokens[0];
  if (shape.eos_tokens.size() > 1) config["eos_token_id"] = shape.eos_tokens;
  return config.dump(2) + "\n";
}

std::vector<ParameterSpec> llama_parameters(const ModelShape& shape) {
  using Role = ParameterRole;
  std::vector<ParameterSpec> list;
  const auto matrix = [&](std::string name, Role role, int64_t layer, int64_t outputs, int64_t inputs) {
    list.push_back({std::move(name), {outputs, inputs}, role, layer, ParameterKind::kMatrix, {}});
  };
  const auto gain = [&](std::string name, Role role, int64_t layer) {
    list.push_back({std::move(name), {shape.hidden}, role, layer, ParameterKind::kVector, {}});
  };
  matrix("model.embed_tokens.weight", Role::kEmbedding, -1, shape.vocab, shape.hidden);
  if (shape.tie_embeddings) list.back().aliases = {"lm_head.weight"};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = cat("model.layers.", layer, ".");
    gain(prefix + "input_layernorm.weight", Role::kAttentionNorm, layer);
    matrix(prefix + "self_attn.q_proj.weight", Role::kQuery, layer, shape.query_size(), shape.hidden);
    matrix(prefix + "self_attn.k_proj.weight", Role::kKey, layer, shape.kv_size(), shape.hidden);
    matrix(prefix + "self_attn.v_proj.weight", Role::kValue, layer, shape.kv_size(), shape.hidden);
    matrix(prefix + "self_attn.o_proj.weight", Role::kAttentionOut, layer, shape.hidden, shape.query_size());
    gain(prefix + "post_attention_layernorm.weight", Role::kMlpNorm, layer);
    matrix(prefix + "mlp.gate_proj.weight", Role::kGate, layer, shape.intermediate, shape.hidden);
    matrix(prefix + "mlp.up_proj.weight", Role::kUp, layer, shape.intermediate, shape.hidden);
    matrix(prefix + "mlp.down_proj.weight", Role::kDown, layer, shape.hidden, shape.intermediate);
  }
  gain("model.norm.weight", Role::kFinalNorm, -1);
  if (!shape.tie_embeddings) matrix("lm_head.weight", Role::kHead, -1, shape.vocab, shape.hidden);
  return list;
}

}  // namespace

const Family kLlamaFamily = {"llama", "LlamaForCausalLM", parse_llama, write_llama, llama_parameters};

}  // namespace invar
