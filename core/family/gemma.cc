#include "core/family/gemma.h"

#include <cmath>

#include "core/family/decoder_config.h"

namespace invar {
namespace {

using nlohmann::json;

void complete_gemma(ModelShape& shape) {
  shape.norm_gain_offset = 1;
  shape.embedding_scale = std::sqrt(static_cast<double>(shape.hidden));
  shape.gate = Gate::kGeluTanh;
}

void complete_gemma2(ModelShape& shape) {
  complete_gemma(shape);
  shape.branch_norms = true;
  shape.attention_soft_cap = 50;
  shape.logit_soft_cap = 30;
}

void complete_gemma3(ModelShape& shape) {
  complete_gemma(shape);
  shape.branch_norms = true;
  shape.query_key_norm = true;
}

// Configs leave out what equals the family's default: tied embeddings, 256 elements a head.
Result<ModelShape> read_config(const json& config, std::string_view path, const Family& family) {
  json whole = config;
  if (!whole.contains("tie_word_embeddings")) whole["tie_word_embeddings"] = true;
  if (!whole.contains("head_dim")) whole["head_dim"] = 256;
  const Fields fields(whole, path);
  INVAR_ASSIGN(ModelShape shape, read_decoder_config(fields, path, family.name));
  family.complete(shape);
  // hidden_activation is what counts where both are given; the old spelling "gelu" means the same function.
  INVAR_TRY(require_one_of(fields, "hidden_activation", {"gelu_pytorch_tanh"}));
  INVAR_TRY(require_one_of(fields, "hidden_act", {"gelu_pytorch_tanh", "gelu"}));
  INVAR_TRY(require_false(fields, "attention_bias"));
  INVAR_TRY(require_false(fields, "use_bidirectional_attention"));
  return shape;
}

Result<ModelShape> parse_gemma(std::string_view text, std::string_view path) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  return read_config(config, path, kGemmaFamily);
}

// Scores are divided by sqrt(query_pre_attn_scalar).
Status read_scores(const Fields& fields, ModelShape& shape) {
  INVAR_ASSIGN(const double scalar, fields.positive_number_or("query_pre_attn_scalar", 256));
  shape.attention_scale = 1 / std::sqrt(scalar);
  INVAR_ASSIGN(shape.attention_soft_cap, number_or_zero(fields, "attn_logit_softcapping"));
  INVAR_ASSIGN(shape.logit_soft_cap, number_or_zero(fields, "final_logit_softcapping"));
  return {};
}

Result<ModelShape> parse_gemma2(std::string_view text, std::string_view path) {
  json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  // Absent means the default, null means none.
  if (!config.contains("attn_logit_softcapping")) config["attn_logit_softcapping"] = 50.0;
  if (!config.contains("final_logit_softcapping")) config["final_logit_softcapping"] = 30.0;
  INVAR_ASSIGN(ModelShape shape, read_config(config, path, kGemma2Family));
  const Fields fields(config, path);
  INVAR_TRY(read_scores(fields, shape));
  INVAR_ASSIGN(const int64_t window, fields.positive_or("sliding_window", 4096));
  INVAR_ASSIGN(shape.windows,
               read_windows(fields, shape, window, [](int64_t layer, const ModelShape&) { return layer % 2 == 0; }));
  return shape;
}

// Windowed layers turn by rope_local_base_freq, or by rope_parameters of "sliding_attention".
Status read_gemma3_rope(const Fields& fields, std::string_view path, ModelShape& shape) {
  if (fields.find("rope_theta") == nullptr) shape.rope_theta = 1e6;
  INVAR_ASSIGN(shape.local_rope_theta, fields.positive_number_or("rope_local_base_freq", 10000));
  const json* by_kind = fields.find("rope_parameters");
  if (by_kind == nullptr || !by_kind->contains("full_attention")) return {};
  const json &whole = (*by_kind)["full_attention"], local = by_kind->value("sliding_attention", json::object());
  if (!whole.is_object()) return fields.wrong_type("rope_parameters", *by_kind, "objects by kind of attention");
  INVAR_TRY(read_rope(Fields(whole, cat(path, ": rope_parameters.full_attention")), shape, shape.rope_theta,
                      shape.rope_scaling));
  RopeScaling scaling;
  const Fields local_fields(local, cat(path, ": rope_parameters.sliding_attention"));
  INVAR_TRY(read_rope(local_fields, shape, shape.local_rope_theta, scaling));
  if (scaling.kind != RopeKind::kPlain) {
    return local_fields.unsupported("rope_type", *local_fields.find("rope_type"), "\"default\"");
  }
  return {};
}

Result<ModelShape> parse_gemma3(std::string_view text, std::string_view path) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  INVAR_ASSIGN(ModelShape shape, read_config(config, path, kGemma3Family));
  const Fields fields(config, path);
  INVAR_TRY(read_scores(fields, shape));
  INVAR_TRY(read_gemma3_rope(fields, path, shape));
  INVAR_ASSIGN(const int64_t window, fields.positive_or("sliding_window", 4096));
  INVAR_ASSIGN(const int64_t pattern, fields.positive_or("sliding_window_pattern", 6));
  INVAR_ASSIGN(shape.windows, read_windows(fields, shape, window, [](int64_t, const ModelShape&) { return true; }));
  if (fields.find("layer_types") == nullptr) {
    for (int64_t layer = pattern - 1; layer < shape.layers; layer += pattern) {
      shape.windows[static_cast<size_t>(layer)] = 0;
    }
  }
  return shape;
}

nlohmann::ordered_json common(const ModelShape& shape, std::string_view torch_dtype) {
  auto config = decoder_config(shape, *find_family(shape.family), torch_dtype);
  config["hidden_act"] = config["hidden_activation"] = "gelu_pytorch_tanh";
  config["attention_bias"] = false;
  return config;
}

std::string write_gemma(const ModelShape& shape, std::string_view torch_dtype) {
  return common(shape, torch_dtype).dump(2) + "\n";
}

std::string write_newer(const ModelShape& shape, std::string_view torch_dtype) {
  auto config = common(shape, torch_dtype);
  const auto cap = [](double value) { return value > 0 ? nlohmann::ordered_json(value) : nullptr; };
  const double scale = shape.attention_scale;
  // A whole number wherever it came from one.
  const double scalar = scale > 0 ? 1 / (scale * scale) : static_cast<double>(shape.head_dim);
  const double rounded = std::nearbyint(scalar);
  if (std::abs(scalar - rounded) < 1e-6 * scalar) {
    config["query_pre_attn_scalar"] = static_cast<int64_t>(rounded);
  } else {
    config["query_pre_attn_scalar"] = scalar;
  }
  config["attn_logit_softcapping"] = cap(shape.attention_soft_cap);
  config["final_logit_softcapping"] = cap(shape.logit_soft_cap);
  int64_t window = 4096;
  for (int64_t size : shape.windows) window = size > 0 ? size : window;
  config["sliding_window"] = window;
  config["layer_types"] = layer_types(shape);
  if (shape.local_rope_theta > 0) config["rope_local_base_freq"] = shape.local_rope_theta;
  return config.dump(2) + "\n";
}

}  // namespace

const Family kGemmaFamily = {"gemma", "GemmaForCausalLM", parse_gemma, complete_gemma, write_gemma, decoder_parameters};
const Family kGemma2Family = {"gemma2",        "Gemma2ForCausalLM", parse_gemma2,
                              complete_gemma2, write_newer,         decoder_parameters};
const Family kGemma3Family = {"gemma3_text",   "Gemma3ForCausalLM", parse_gemma3,
                              complete_gemma3, write_newer,         decoder_parameters};

}  // namespace invar
