// Feeds bytes as config.json, hf_quant_config.json or params.json beside weights that several layouts could claim.
// What must hold for any bytes: no crash, an error with a reason, and exactly one meaning for every tensor of what is
// accepted; the config that is written again is accepted too and declares nothing more.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/base/memory_files.h"
#include "core/checkpoint/layout.h"
#include "core/checkpoint/side_files.h"
#include "core/container/safetensors_writer.h"

namespace {

using invar::DType;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s does not hold\n", what);
  std::abort();
}

std::string weights() {
  invar::MemoryFiles files;
  const std::vector<invar::TensorSpec> specs = {{"model.embed_tokens.weight", DType::kBF16, {16, 32}},
                                                {"model.layers.0.self_attn.q_proj.weight", DType::kE4M3FN, {32, 32}},
                                                {"model.layers.0.self_attn.q_proj.weight_scale", DType::kF32, {1}},
                                                {"model.layers.0.mlp.up_proj.weight", DType::kE4M3FN, {32, 32}},
                                                {"model.layers.0.mlp.up_proj.weight_scale_inv", DType::kF32, {2, 2}},
                                                {"model.layers.0.mlp.down_proj.weight_packed", DType::kU8, {32, 16}},
                                                {"model.layers.0.mlp.down_proj.weight_scale", DType::kE4M3FN, {32, 2}},
                                                {"model.layers.0.mlp.down_proj.weight_global_scale", DType::kF32, {1}}};
  auto writer = invar::SafetensorsWriter::create(files, "/w", specs);
  require(writer.ok(), "the seed's weights can be written");
  for (const auto& spec : specs) {
    const auto bytes = invar::bytes_of(spec.dtype, invar::element_count(spec.shape));
    require(writer->write(spec.name, 0, std::vector<std::byte>(static_cast<size_t>(bytes), std::byte{0x3c})).ok(),
            "the seed's weights can be written");
  }
  require(writer->close(false).ok(), "the seed's weights can be written");
  return *invar::read_text(files, "/w", 1 << 20);
}

void check(const std::string& name, const std::string& text) {
  static const std::string tensors = weights();
  invar::MemoryFiles files;
  files.put("/m/model.safetensors", tensors);
  files.put("/m/" + name, text);
  const auto folder = invar::CheckpointFolder::open(files, "/m");
  require(folder.ok(), "a config does not matter to the container");
  const auto layout = invar::classify(*folder, {});
  require(layout.ok() || !layout.status().reason().empty(), "an error has a reason");
  if (layout.ok()) {
    require(layout->tensors.size() + layout->dropped.size() == folder->tensors().size(),
            "every tensor has one meaning");
  }
  invar::SideFileOptions options;
  options.torch_dtype = "bfloat16";
  const auto plan = invar::plan_side_files(*folder, options);
  if (!plan.ok()) return;
  for (const invar::SideFile& file : plan->files) {
    if (file.name != "config.json" || !file.copied_from.empty()) continue;
    const auto again = invar::rewrite_config(file.text, "config.json", options);
    require(again.ok() && *again == file.text, "a rewritten config stays as it is");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"config.json", "hf_quant_config.json", "params.json"}) check(name, text);
  return 0;
}
