// Writes FP8 checkpoints that other software serves: E4M3 codes, their scales, and the quantization_config that
// describes them.
//
//   QuantizedOptions options;
//   options.layout = Fp8Layout::kBlock;
//   options.bf16_copy = "out/model-bf16";
//   INVAR_ASSIGN(auto report, write_quantized_model(files, "out/model-fp8", folder, options, {}));
//
// Layouts (the stored scale multiplies on decode):
//   kBlock    one F32 weight_scale_inv per 128x128 block, ragged at the ends: [ceil(rows/128), ceil(cols/128)];
//             quant_method "fp8", read by transformers, vLLM and everything that reads DeepSeek-V3's layout
//   kTensor   compressed-tensors "float-quantized", one weight_scale [1] a matrix
//   kChannel  the same, one weight_scale a row: [rows, 1]
// scale_inv = amax / 448 in FP32 (rounded to the scale's dtype; up to a power of two when asked), 1 where everything
// is zero; code = nearest-even of value / scale_inv. So encoding the decoded values again gives the same codes.
// Quantised are 2-D weights of linear layers; embedding, head, norms, routers and `keep` stay in the folder's dtype.
// Thread rule: functions; pool and cancel as in ModelWriteOptions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/model_writer.h"

namespace invar {

enum class Fp8Layout { kBlock, kTensor, kChannel };

struct QuantizedOptions {
  Fp8Layout layout = Fp8Layout::kBlock;
  DType scale_dtype = DType::kF32;  // or kBF16
  bool power_of_two_scales = false;
  std::vector<std::string> keep;  // patterns (base/glob.h) over tensor names that stay unquantised
  std::string bf16_copy;          // target folder of a BF16 copy; empty: none
  std::string masters_copy;       // target folder of the FP32 values; empty: none
  // Looks at the whole FP8 folder before it appears; a failure keeps it from appearing.
  std::function<Status(const std::string& staged)> check = {};
};

struct QuantizedTensorReport {
  std::string name;
  std::string rule;    // "block_scale", "tensor_scale", "row_scale"; "copy" for tensors that were not quantised
  double sqnr_db = 0;  // of the decoded codes against the FP32 values; infinite when nothing is lost
  float amax = 0;
  int64_t scales = 0;
  int64_t zero_codes = 0;  // values other than zero that became zero
};

struct QuantizedReport {
  std::vector<QuantizedTensorReport> tensors;  // in the order of the folder's tensors
  int64_t quantized = 0;
  int64_t ragged = 0;       // kBlock: of them, those with a size that is no multiple of 128
  int64_t bytes = 0;        // of tensors in the FP8 folder
  double mean_sqnr_db = 0;  // over the quantised tensors
};

// The stored scale of a group whose largest magnitude is `amax`: F32, not a power of two.
float fp8_scale_inv(float amax);

// What readers do not all take: a sentence for people, or nothing.
std::vector<std::string> reader_warnings(const QuantizedReport& report);

// True for tensors that are quantised: "[out, in]" weights of linear layers, judged by shape and name.
bool is_linear_weight(std::string_view name, const std::vector<int64_t>& shape);

// The quantization_config for config.json. `kept_modules`: linear modules that stay unquantised ("lm_head").
std::string quantization_config_text(const QuantizedOptions& options, const std::vector<std::string>& kept_modules);

// folder.config describes the unquantised model; its quantization_config and dtype are put right in each output.
// Values that are not finite are an error ("checkpoint.not_finite", with tensor and element): nothing is written then.
Result<QuantizedReport> write_quantized_model(FileSystem& files, const std::string& target, const ModelFolder& folder,
                                              const QuantizedOptions& options, const ModelWriteOptions& write);

}  // namespace invar
