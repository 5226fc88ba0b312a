#include "core/family/llama.h"

#include "core/family/decoder_config.h"

namespace invar {
namespace {

Result<ModelShape> parse(std::string_view text, std::string_view path) {
  const auto config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Fields fields(config, path);
  INVAR_ASSIGN(ModelShape shape, read_decoder_config(fields, path, kLlamaFamily.name));
  INVAR_TRY(require_one_of(fields, "hidden_act", {"silu", "swish"}));
  INVAR_TRY(require_false(fields, "attention_bias"));
  INVAR_TRY(require_false(fields, "mlp_bias"));
  INVAR_TRY(require_absent(
      fields, {"sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "num_local_experts"}));
  return shape;
}

std::string write(const ModelShape& shape, std::string_view torch_dtype) {
  auto config = decoder_config(shape, kLlamaFamily, torch_dtype);
  config["hidden_act"] = "silu";
  config["attention_bias"] = config["mlp_bias"] = false;
  return config.dump(2) + "\n";
}

}  // namespace

const Family kLlamaFamily = {"llama", "LlamaForCausalLM", parse, nullptr, write, decoder_parameters};

}  // namespace invar
