#include "core/family/mistral.h"

#include "core/family/decoder_config.h"

namespace invar {
namespace {

Result<ModelShape> parse(std::string_view text, std::string_view path) {
  const auto config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Fields fields(config, path);
  INVAR_ASSIGN(ModelShape shape, read_decoder_config(fields, path, kMistralFamily.name));
  INVAR_TRY(require_one_of(fields, "hidden_act", {"silu", "swish"}));
  INVAR_TRY(require_absent(fields, {"num_local_experts", "layer_types"}));
  if (fields.find("sliding_window") != nullptr) {
    INVAR_ASSIGN(const int64_t window, fields.positive("sliding_window"));
    INVAR_ASSIGN(shape.windows, read_windows(fields, shape, window, [](int64_t, const ModelShape&) { return true; }));
  }
  return shape;
}

std::string write(const ModelShape& shape, std::string_view torch_dtype) {
  auto config = decoder_config(shape, kMistralFamily, torch_dtype);
  config["hidden_act"] = "silu";
  config["sliding_window"] = nullptr;  // absent would mean 4096
  if (shape.window(0) > 0) config["sliding_window"] = shape.window(0);
  return config.dump(2) + "\n";
}

}  // namespace

const Family kMistralFamily = {"mistral", "MistralForCausalLM", parse, nullptr, write, decoder_parameters};

}  // namespace invar
