#include "core/family/qwen.h"

#include "core/family/decoder_config.h"

namespace invar {
namespace {

void complete_qwen2(ModelShape& shape) { shape.qkv_bias = true; }
void complete_qwen3(ModelShape& shape) { shape.query_key_norm = true; }

// Windows only where "use_sliding_window" is true, then from layer "max_window_layers" on.
Status read_qwen_windows(const Fields& fields, ModelShape& shape) {
  INVAR_ASSIGN(const bool used, fields.boolean_or("use_sliding_window", false));
  if (!used) return {};
  INVAR_ASSIGN(const int64_t window, fields.positive_or("sliding_window", 4096));
  INVAR_ASSIGN(const int64_t first, fields.positive_or("max_window_layers", 28));
  INVAR_ASSIGN(shape.windows, read_windows(fields, shape, window, [](int64_t, const ModelShape&) { return true; }));
  if (fields.find("layer_types") != nullptr) return {};
  for (size_t layer = 0; layer < shape.windows.size() && static_cast<int64_t>(layer) < first; ++layer) {
    shape.windows[layer] = 0;
  }
  if (first >= shape.layers) shape.windows.clear();
  return {};
}

Result<ModelShape> parse(std::string_view text, std::string_view path, const Family& family) {
  const auto config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Fields fields(config, path);
  INVAR_ASSIGN(ModelShape shape, read_decoder_config(fields, path, family.name));
  family.complete(shape);
  INVAR_TRY(require_one_of(fields, "hidden_act", {"silu", "swish"}));
  INVAR_TRY(require_absent(fields, {"num_experts"}));
  INVAR_TRY(read_qwen_windows(fields, shape));
  return shape;
}

Result<ModelShape> parse_qwen2(std::string_view text, std::string_view path) { return parse(text, path, kQwen2Family); }

Result<ModelShape> parse_qwen3(std::string_view text, std::string_view path) {
  const auto config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  INVAR_TRY(require_false(Fields(config, path), "attention_bias"));
  return parse(text, path, kQwen3Family);
}

std::string write(const ModelShape& shape, std::string_view torch_dtype) {
  auto config = decoder_config(shape, *find_family(shape.family), torch_dtype);
  config["hidden_act"] = "silu";
  if (shape.query_key_norm) config["attention_bias"] = false;
  config["use_sliding_window"] = !shape.windows.empty();
  if (!shape.windows.empty()) {
    for (int64_t window : shape.windows) {
      if (window > 0) config["sliding_window"] = window;
    }
    config["layer_types"] = layer_types(shape);
  }
  return config.dump(2) + "\n";
}

}  // namespace

const Family kQwen2Family = {"qwen2", "Qwen2ForCausalLM", parse_qwen2, complete_qwen2, write, decoder_parameters};
const Family kQwen3Family = {"qwen3", "Qwen3ForCausalLM", parse_qwen3, complete_qwen3, write, decoder_parameters};

}  // namespace invar
