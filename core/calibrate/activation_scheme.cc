#include "core/calibrate/activation_scheme.h"

#include <cmath>
#include <vector>

#include "core/numerics/codec.h"

namespace invar {
namespace {

ActivationScheme undefined(std::string why) { return {.input = {}, .why = std::move(why)}; }

std::string module_of(const std::string& weight) {
  const auto dot = weight.rfind('.');
  return dot == std::string::npos ? weight : weight.substr(0, dot);
}

const TensorInfo* find_input_scale(const CheckpointFolder& folder, const std::string& module) {
  for (const char* suffix : {".input_scale", ".activation_scale", ".scale_input", ".qscale_act"}) {
    if (const TensorInfo* found = folder.find(module + suffix); found != nullptr) return found;
  }
  return nullptr;
}

Result<ActivationScheme> static_scheme(const CheckpointFolder& folder, const std::string& module) {
  const TensorInfo* tensor = find_input_scale(folder, module);
  if (tensor == nullptr) {
    return Error(Code::kDataLoss, "checkpoint.bad_config",
                 cat(folder.path(), ": static activation scales are declared, but ", in_quotes(module + ".input_scale"),
                     " is not stored; activations=weight_only compares without them"));
  }
  INVAR_ASSIGN(const std::vector<std::byte> bytes, folder.read_all(*tensor));
  ActivationScheme scheme;
  scheme.input.granularity = Granularity::kTensor;
  float& scale = scheme.input.scale_inv;
  if (element_count(tensor->shape) != 1 || !convert_to_f32(tensor->dtype, bytes.data(), &scale, 1) || !(scale > 0) ||
      !std::isfinite(scale)) {
    return Error(Code::kDataLoss, "checkpoint.scale_shape",
                 cat(folder.path(), ": tensor ", in_quotes(tensor->name), " of shape ", shape_text(tensor->shape),
                     " and dtype ", name_of(tensor->dtype), " is no activation scale: expected one positive number"));
  }
  return scheme;
}

ActivationScheme dynamic_scheme(Granularity granularity, int64_t group = 0) {
  ActivationScheme scheme;
  scheme.input.granularity = granularity;
  if (group > 0) scheme.input.block_cols = group;
  return scheme;
}

Result<ActivationScheme> compressed_scheme(const CheckpointFolder& folder, const Declared& declared,
                                           const std::string& module) {
  const WeightGroup* group = declared.group_of(module);
  if (group == nullptr || !group->inputs) return ActivationScheme{};  // weights alone are quantised
  const DeclaredQuantizer& inputs = *group->inputs;
  if (inputs.type != "float" || inputs.bits != 8) {
    return undefined(cat("inputs of ", inputs.bits, " bits of type ", in_quotes(inputs.type)));
  }
  if (inputs.strategy == "tensor" && !inputs.dynamic) return static_scheme(folder, module);
  if (inputs.strategy == "tensor") return dynamic_scheme(Granularity::kTensor);
  if (inputs.strategy == "token") return dynamic_scheme(Granularity::kRow);
  if (inputs.strategy == "group" && inputs.group_size > 0) {
    return dynamic_scheme(Granularity::kBlock, inputs.group_size);
  }
  return undefined(cat("inputs with the strategy ", in_quotes(inputs.strategy)));
}

}  // namespace

std::string ActivationScheme::words() const {
  if (!why.empty()) return cat("unknown: ", why);
  switch (input.granularity) {
    case Granularity::kNone: return "none";
    case Granularity::kTensor: return input.scale_inv > 0 ? "e4m3 with stored scales" : "e4m3 per tensor";
    case Granularity::kRow: return "e4m3 per token";
    case Granularity::kBlock: break;
  }
  return cat("e4m3 in 1x", input.block_cols, " blocks", input.power_of_two ? ", scales are powers of two" : "");
}

Result<ActivationScheme> activation_scheme(const CheckpointFolder& folder, const Declared& declared,
                                           const TensorPlan& plan) {
  if (!plan.quantized()) return ActivationScheme{};
  if (plan.coding != Coding::kFloat || !is_fp8(plan.code_dtype)) return undefined(cat("the layout ", plan.layout));
  const std::string module = module_of(plan.name);
  if (declared.method == "compressed-tensors") return compressed_scheme(folder, declared, module);
  if (plan.rule == "block_scale") {
    ActivationScheme scheme = dynamic_scheme(Granularity::kBlock, plan.scales.at(0).grid.block_cols);
    scheme.input.power_of_two = declared.scale_format == "ue8m0";
    return scheme;
  }
  const bool says_dynamic = declared.activation_scheme == "dynamic";
  if (declared.activation_scheme == "static" || (!says_dynamic && find_input_scale(folder, module) != nullptr)) {
    return static_scheme(folder, module);
  }
  return dynamic_scheme(Granularity::kRow);
}

}  // namespace invar
