#include "core/family/family.h"

#include <nlohmann/json.hpp>

#include "core/container/json_document.h"
#include "core/family/gemma.h"
#include "core/family/json_fields.h"
#include "core/family/llama.h"
#include "core/family/mistral.h"
#include "core/family/qwen.h"

namespace invar {
namespace {

// The one table of families.
constexpr const Family* kFamilies[] = {
    &kLlamaFamily, &kMistralFamily, &kQwen2Family, &kQwen3Family, &kGemmaFamily, &kGemma2Family, &kGemma3Family,
};

}  // namespace

int64_t ParameterSpec::count() const {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

std::span<const Family* const> families() { return kFamilies; }

const Family* find_family(std::string_view model_type) {
  for (const Family* family : kFamilies) {
    if (family->name == model_type) return family;
  }
  return nullptr;
}

std::string supported_families() {
  std::string list;
  for (const Family* family : kFamilies) list += cat(list.empty() ? "" : ", ", family->name);
  return list;
}

Result<ModelShape> parse_model_config(std::string_view text, std::string_view path) {
  // Bounds the nesting, before a family or a message prints a value.
  if (const auto object = parse_json_object(path, text, "config.invalid_json"); !object.ok()) {
    return Error(Code::kInvalidArgument, "config.invalid_json", object.status().message());
  }
  const auto config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Fields fields(config, path);
  INVAR_ASSIGN(const std::string type, fields.string_or("model_type", ""));
  if (type.empty()) {
    return Error(Code::kInvalidArgument, "config.missing_key",
                 cat(path, ": \"model_type\" is missing: expected one of ", supported_families()));
  }
  const Family* family = find_family(type);
  if (family == nullptr) {
    return Error(
        Code::kUnimplemented, "config.unknown_model_type",
        cat(path, ": \"model_type\" is \"", type, "\": not supported, expected one of ", supported_families()));
  }
  INVAR_ASSIGN(ModelShape shape, family->parse(text, path));
  INVAR_TRY(validate_shape(shape, path));
  return shape;
}

ModelShape complete_shape(ModelShape shape) {
  const Family* family = find_family(shape.family);
  if (family != nullptr && family->complete != nullptr) family->complete(shape);
  return shape;
}

Result<std::string> write_model_config(const ModelShape& shape, std::string_view torch_dtype) {
  INVAR_TRY(validate_shape(shape, "model"));
  return find_family(shape.family)->write(shape, torch_dtype);
}

Status validate_shape(const ModelShape& shape, std::string_view where) {
  if (find_family(shape.family) == nullptr) {
    return Error(
        Code::kUnimplemented, "config.unknown_model_type",
        cat(where, ": model type \"", shape.family, "\" is not supported, expected one of ", supported_families()));
  }
  constexpr int64_t kLargest = int64_t{1} << 31;
  const std::pair<const char*, int64_t> sizes[] = {
      {"vocab_size", shape.vocab},
      {"hidden_size", shape.hidden},
      {"num_hidden_layers", shape.layers},
      {"num_attention_heads", shape.heads},
      {"num_key_value_heads", shape.kv_heads},
      {"head_dim", shape.head_dim},
      {"intermediate_size", shape.intermediate},
      {"max_position_embeddings", shape.max_positions},
  };
  for (const auto& [key, size] : sizes) {
    if (size < 1 || size > kLargest) {
      return Error(Code::kInvalidArgument, "config.out_of_range",
                   cat(where, ": \"", key, "\" is ", size, ": expected 1 to ", kLargest));
    }
  }
  if (!shape.windows.empty() && static_cast<int64_t>(shape.windows.size()) != shape.layers) {
    return Error(Code::kInvalidArgument, "config.out_of_range",
                 cat(where, ": ", shape.windows.size(), " windows for ", shape.layers, " layers"));
  }
  if (shape.heads % shape.kv_heads != 0) {
    return Error(Code::kInvalidArgument, "config.out_of_range",
                 cat(where, ": \"num_attention_heads\" is ", shape.heads,
                     ": expected a multiple of \"num_key_value_heads\" ", shape.kv_heads));
  }
  if (shape.head_dim % 2 != 0) {
    return Error(Code::kInvalidArgument, "config.out_of_range",
                 cat(where, ": \"head_dim\" is ", shape.head_dim, ": expected an even number"));
  }
  if (!(shape.norm_eps > 0) || !(shape.rope_theta > 0)) {
    return Error(Code::kInvalidArgument, "config.out_of_range",
                 cat(where, ": \"rms_norm_eps\" is ", shape.norm_eps, " and \"rope_theta\" is ", shape.rope_theta,
                     ": expected numbers above 0"));
  }
  for (int64_t token : shape.eos_tokens) {
    if (token < 0 || token >= shape.vocab) {
      return Error(Code::kInvalidArgument, "config.out_of_range",
                   cat(where, ": \"eos_token_id\" is ", token, ": expected 0 to ", shape.vocab - 1));
    }
  }
  return {};
}

std::vector<ParameterSpec> parameters_of(const ModelShape& shape) {
  return find_family(shape.family)->parameters(shape);
}

int64_t parameter_count(const ModelShape& shape) {
  int64_t total = 0;
  for (const ParameterSpec& parameter : parameters_of(shape)) total += parameter.count();
  return total;
}

}  // namespace invar
