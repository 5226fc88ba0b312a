#include "core/checkpoint/producer.h"

#include <string_view>

namespace invar {
namespace {

// A producer's signs: all that are given must hold.
struct Signs {
  std::string_view name;
  std::string_view method = {};        // quant_method
  std::string_view layout = {};        // one of the layouts starts so
  std::string_view scale_format = {};  // scale_fmt
  bool by_activations = false;         // activation_scheme is declared and no block size
};

// The most particular first.
constexpr Signs kSigns[] = {
    {.name = "llm-compressor", .method = "compressed-tensors"},
    {.name = "NVIDIA ModelOpt", .method = "modelopt"},
    {.name = "AMD Quark", .method = "quark"},
    {.name = "FBGEMM by transformers", .method = "fbgemm_fp8"},
    {.name = "GPT-OSS", .method = "mxfp4"},
    {.name = "bitsandbytes", .method = "bitsandbytes"},
    {.name = "TorchAO", .method = "torchao"},
    {.name = "Mistral", .method = "mistral"},
    {.name = "DeepSeek V4", .layout = "deepseek-v4"},
    {.name = "DeepSeek V3.1 or later", .method = "fp8", .layout = "fp8-block-scale-inv", .scale_format = "ue8m0"},
    {.name = "DeepSeek V3 or transformers' fine-grained FP8", .method = "fp8", .layout = "fp8-block-scale-inv"},
    {.name = "AutoFP8", .method = "fp8", .layout = "fp8-tensor-scale", .by_activations = true},
    {.name = "llama.cpp", .layout = "gguf"},
    {.name = "ComfyUI", .layout = "scaled-fp8"},
    {.name = "TorchAO", .layout = "torchao"},
    {.name = "bitsandbytes", .layout = "bitsandbytes"},
    {.name = "GPT-OSS", .layout = "gpt-oss"},
    {.name = "Mistral", .layout = "mistral-qscale"},
    {.name = "NVIDIA ModelOpt", .layout = "modelopt"},
    {.name = "llm-compressor", .layout = "compressed-tensors"},
};

bool has_layout(const std::string& joined, std::string_view start) {
  for (size_t begin = 0; begin < joined.size();) {
    if (std::string_view(joined).substr(begin).starts_with(start)) return true;
    const size_t end = joined.find('+', begin);
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return false;
}

}  // namespace

Producer guess_producer(const Declared& declared, const std::string& layout) {
  if (layout == "none") return {};
  if (!declared.producer.empty()) return {declared.producer, cat(declared.producer_file, " names it")};
  for (const Signs& signs : kSigns) {
    std::string reason;
    const auto add = [&reason](const std::string& sign) { reason += (reason.empty() ? "" : ", ") + sign; };
    if (!signs.method.empty()) {
      if (declared.method != signs.method) continue;
      add(cat("quant_method ", in_quotes(declared.method)));
    }
    if (!signs.layout.empty()) {
      if (!has_layout(layout, signs.layout)) continue;
      add(cat("layout ", signs.layout));
    }
    if (!signs.scale_format.empty()) {
      if (declared.scale_format != signs.scale_format) continue;
      add(cat("scale_fmt ", in_quotes(declared.scale_format)));
    }
    if (signs.by_activations) {
      if (declared.activation_scheme.empty() || declared.block) continue;
      add(cat("activation_scheme ", in_quotes(declared.activation_scheme), " without a block size"));
    }
    return {std::string(signs.name), reason};
  }
  return {};
}

}  // namespace invar
