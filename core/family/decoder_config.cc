#include "core/family/decoder_config.h"

#include <algorithm>
#include <cmath>

namespace invar {
namespace {

using nlohmann::json;

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

Status read_yarn(const Fields& rope, const ModelShape& shape, RopeScaling& scaling) {
  const double stretched = static_cast<double>(shape.max_positions) / static_cast<double>(scaling.original_positions);
  INVAR_ASSIGN(scaling.factor, rope.positive_number_or("factor", stretched));
  INVAR_ASSIGN(scaling.beta_fast, rope.positive_number_or("beta_fast", 32));
  INVAR_ASSIGN(scaling.beta_slow, rope.positive_number_or("beta_slow", 1));
  INVAR_ASSIGN(scaling.truncate, rope.boolean_or("truncate", true));
  INVAR_ASSIGN(const double mscale, number_or_zero(rope, "mscale"));
  INVAR_ASSIGN(const double mscale_all, number_or_zero(rope, "mscale_all_dim"));
  // Peng et al. 2023, equation 22, with DeepSeek's two multipliers.
  const auto temperature = [&](double scale) {
    return scaling.factor <= 1 ? 1.0 : 0.1 * scale * std::log(scaling.factor) + 1.0;
  };
  const bool both = mscale > 0 && mscale_all > 0;
  const double inferred = both ? temperature(mscale) / temperature(mscale_all) : temperature(1);
  INVAR_ASSIGN(scaling.attention_factor, rope.positive_number_or("attention_factor", inferred));
  return {};
}

// Older files: rope_theta and rope_scaling. Newer ones: rope_parameters {rope_type, rope_theta, ...}.
Status read_rope_keys(const Fields& fields, std::string_view path, ModelShape& shape) {
  INVAR_ASSIGN(shape.rope_theta, fields.positive_number_or("rope_theta", 10000.0));
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json* value = fields.find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) return fields.wrong_type(key, *value, "an object");
    // By kind of layer: the family reads it.
    if (value->contains("full_attention") || value->contains("sliding_attention")) continue;
    const Fields rope(*value, cat(path, ": ", key));
    INVAR_TRY(read_rope(rope, shape, shape.rope_theta, shape.rope_scaling));
  }
  return {};
}

}  // namespace

Status read_rope(const Fields& rope, const ModelShape& shape, double& theta, RopeScaling& scaling) {
  INVAR_ASSIGN(theta, rope.positive_number_or("rope_theta", theta));
  if (const json* part = rope.find("partial_rotary_factor"); part != nullptr && *part != 1.0) {
    return rope.unsupported("partial_rotary_factor", *part, "1");
  }
  const char* type_key = rope.find("rope_type") != nullptr ? "rope_type" : "type";
  INVAR_ASSIGN(const std::string type, rope.string_or(type_key, "default"));
  scaling = {};
  if (type == "default") return {};
  if (type == "linear") {
    scaling.kind = RopeKind::kLinear;
    INVAR_ASSIGN(scaling.factor, rope.positive_number_or("factor", 1));
    return {};
  }
  if (type != "llama3" && type != "yarn") {
    return rope.unsupported(type_key, *rope.find(type_key), "\"default\", \"linear\", \"llama3\" or \"yarn\"");
  }
  INVAR_ASSIGN(scaling.original_positions, rope.positive_or("original_max_position_embeddings", shape.max_positions));
  if (type == "yarn") {
    scaling.kind = RopeKind::kYarn;
    return read_yarn(rope, shape, scaling);
  }
  scaling.kind = RopeKind::kLlama3;
  INVAR_ASSIGN(scaling.factor, rope.positive_number_or("factor", 1));
  INVAR_ASSIGN(scaling.low_frequency, rope.positive_number_or("low_freq_factor", 1));
  INVAR_ASSIGN(scaling.high_frequency, rope.positive_number_or("high_freq_factor", 4));
  if (scaling.high_frequency <= scaling.low_frequency) {
    return rope.unsupported("high_freq_factor", *rope.find("high_freq_factor"), "more than \"low_freq_factor\"");
  }
  return {};
}

Result<ModelShape> read_decoder_config(const Fields& fields, std::string_view path, std::string_view family) {
  ModelShape shape;
  shape.family = family;
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
  INVAR_TRY(read_rope_keys(fields, path, shape));
  INVAR_ASSIGN(shape.tie_embeddings, fields.boolean_or("tie_word_embeddings", false));
  INVAR_ASSIGN(const std::vector<int64_t> bos, token_ids(fields, "bos_token_id"));
  if (!bos.empty()) shape.bos_token = bos[0];
  INVAR_ASSIGN(shape.eos_tokens, token_ids(fields, "eos_token_id"));
  if (const json* dropout = fields.find("attention_dropout"); dropout != nullptr && *dropout != 0.0) {
    return fields.unsupported("attention_dropout", *dropout, "0");
  }
  return shape;
}

nlohmann::ordered_json decoder_config(const ModelShape& shape, const Family& family, std::string_view torch_dtype) {
  nlohmann::ordered_json config = {
      {"architectures", {family.architecture}},
      {"model_type", family.name},
      {"vocab_size", shape.vocab},
      {"hidden_size", shape.hidden},
      {"intermediate_size", shape.intermediate},
      {"num_hidden_layers", shape.layers},
      {"num_attention_heads", shape.heads},
      {"num_key_value_heads", shape.kv_heads},
      {"head_dim", shape.head_dim},
      {"max_position_embeddings", shape.max_positions},
      {"rms_norm_eps", shape.norm_eps},
      {"rope_theta", shape.rope_theta},
      {"attention_dropout", 0.0},
      {"tie_word_embeddings", shape.tie_embeddings},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"torch_dtype", torch_dtype},
  };
  if (shape.bos_token >= 0) config["bos_token_id"] = shape.bos_token;
  if (shape.eos_tokens.size() == 1) config["eos_token_id"] = shape.eos_tokens[0];
  if (shape.eos_tokens.size() > 1) config["eos_token_id"] = shape.eos_tokens;
  const RopeScaling& scaling = shape.rope_scaling;
  switch (scaling.kind) {
    case RopeKind::kPlain: break;
    case RopeKind::kLinear: config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", scaling.factor}}; break;
    case RopeKind::kLlama3:
      config["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", scaling.factor},
                                {"low_freq_factor", scaling.low_frequency},
                                {"high_freq_factor", scaling.high_frequency},
                                {"original_max_position_embeddings", scaling.original_positions}};
      break;
    case RopeKind::kYarn:
      config["rope_scaling"] = {{"rope_type", "yarn"},
                                {"factor", scaling.factor},
                                {"original_max_position_embeddings", scaling.original_positions},
                                {"attention_factor", scaling.attention_factor},
                                {"beta_fast", scaling.beta_fast},
                                {"beta_slow", scaling.beta_slow},
                                {"truncate", scaling.truncate}};
      break;
  }
  return config;
}

Status require_false(const Fields& fields, const char* key) {
  INVAR_ASSIGN(const bool value, fields.boolean_or(key, false));
  return value ? fields.unsupported(key, *fields.find(key), "false") : Status();
}

Status require_absent(const Fields& fields, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const json* value = fields.find(key)) return fields.unsupported(key, *value, "null");
  }
  return {};
}

Status require_one_of(const Fields& fields, const char* key, std::initializer_list<std::string_view> names) {
  INVAR_ASSIGN(const std::string value, fields.string_or(key, *names.begin()));
  if (std::find(names.begin(), names.end(), value) != names.end()) return {};
  std::string list;
  for (std::string_view name : names) list += cat(list.empty() ? "" : " or ", "\"", name, "\"");
  return fields.unsupported(key, *fields.find(key), list);
}

Result<double> number_or_zero(const Fields& fields, const char* key) {
  if (fields.find(key) == nullptr) return 0.0;
  return fields.positive_number_or(key, 1);
}

Result<std::vector<int64_t>> read_windows(const Fields& fields, const ModelShape& shape, int64_t window,
                                          bool (*is_windowed)(int64_t layer, const ModelShape& shape)) {
  std::vector<int64_t> windows(static_cast<size_t>(std::min<int64_t>(shape.layers, 1 << 20)));
  const json* types = fields.find("layer_types");
  if (types != nullptr && (!types->is_array() || static_cast<int64_t>(types->size()) != shape.layers)) {
    return fields.wrong_type("layer_types", *types, cat("a list of ", shape.layers, " kinds of attention"));
  }
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    bool windowed = is_windowed(static_cast<int64_t>(layer), shape);
    if (types != nullptr) {
      const json& type = (*types)[layer];
      if (type != "full_attention" && type != "sliding_attention") {
        return fields.unsupported("layer_types", type, "\"full_attention\" or \"sliding_attention\"");
      }
      windowed = type == "sliding_attention";
    }
    windows[layer] = windowed ? window : 0;
  }
  if (std::all_of(windows.begin(), windows.end(), [](int64_t value) { return value == 0; })) windows.clear();
  return windows;
}

std::vector<std::string> layer_types(const ModelShape& shape) {
  std::vector<std::string> types;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    types.push_back(shape.window(layer) > 0 ? "sliding_attention" : "full_attention");
  }
  return types;
}

std::vector<ParameterSpec> decoder_parameters(const ModelShape& shape) {
  using Role = ParameterRole;
  std::vector<ParameterSpec> list;
  const auto matrix = [&](std::string name, Role role, int64_t layer, int64_t outputs, int64_t inputs) {
    list.push_back({std::move(name), {outputs, inputs}, role, layer, ParameterKind::kMatrix, {}, 1});
  };
  const auto vector = [&](std::string name, Role role, int64_t layer, int64_t size, double initial) {
    list.push_back({std::move(name), {size}, role, layer, ParameterKind::kVector, {}, static_cast<float>(initial)});
  };
  const auto gain = [&](std::string name, Role role, int64_t layer, int64_t size) {
    vector(std::move(name), role, layer, size, 1 - shape.norm_gain_offset);
  };
  matrix("model.embed_tokens.weight", Role::kEmbedding, -1, shape.vocab, shape.hidden);
  if (shape.tie_embeddings) list.back().aliases = {"lm_head.weight"};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = cat("model.layers.", layer, "."), attention = prefix + "self_attn.";
    gain(prefix + "input_layernorm.weight", Role::kAttentionNorm, layer, shape.hidden);
    matrix(attention + "q_proj.weight", Role::kQuery, layer, shape.query_size(), shape.hidden);
    matrix(attention + "k_proj.weight", Role::kKey, layer, shape.kv_size(), shape.hidden);
    matrix(attention + "v_proj.weight", Role::kValue, layer, shape.kv_size(), shape.hidden);
    if (shape.qkv_bias) {
      vector(attention + "q_proj.bias", Role::kQueryBias, layer, shape.query_size(), 0);
      vector(attention + "k_proj.bias", Role::kKeyBias, layer, shape.kv_size(), 0);
      vector(attention + "v_proj.bias", Role::kValueBias, layer, shape.kv_size(), 0);
    }
    if (shape.query_key_norm) {
      gain(attention + "q_norm.weight", Role::kQueryNorm, layer, shape.head_dim);
      gain(attention + "k_norm.weight", Role::kKeyNorm, layer, shape.head_dim);
    }
    matrix(attention + "o_proj.weight", Role::kAttentionOut, layer, shape.hidden, shape.query_size());
    // Without branch norms the name that says "post attention" is the MLP's input norm.
    const std::string after_attention = prefix + "post_attention_layernorm.weight";
    if (shape.branch_norms) {
      gain(after_attention, Role::kAttentionBranchNorm, layer, shape.hidden);
      gain(prefix + "pre_feedforward_layernorm.weight", Role::kMlpNorm, layer, shape.hidden);
    } else {
      gain(after_attention, Role::kMlpNorm, layer, shape.hidden);
    }
    matrix(prefix + "mlp.gate_proj.weight", Role::kGate, layer, shape.intermediate, shape.hidden);
    matrix(prefix + "mlp.up_proj.weight", Role::kUp, layer, shape.intermediate, shape.hidden);
    matrix(prefix + "mlp.down_proj.weight", Role::kDown, layer, shape.hidden, shape.intermediate);
    if (shape.branch_norms) {
      gain(prefix + "post_feedforward_layernorm.weight", Role::kMlpBranchNorm, layer, shape.hidden);
    }
  }
  gain("model.norm.weight", Role::kFinalNorm, -1, shape.hidden);
  if (!shape.tie_embeddings) matrix("lm_head.weight", Role::kHead, -1, shape.vocab, shape.hidden);
  return list;
}

}  // namespace invar
