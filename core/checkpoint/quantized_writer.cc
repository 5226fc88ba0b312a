#include "core/checkpoint/quantized_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/base/glob.h"
#include "core/checkpoint/parallel_chunks.h"
#include "core/container/json_document.h"
#include "core/numerics/codec.h"

namespace invar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kBlock = 128;
constexpr float kLargestCode = 448;
// Rows of one unit of work; the unit of kBlock is one row of blocks.
constexpr int64_t kUnitRows = kBlock;

// scale_inv of a group whose largest magnitude is `amax`, as a reader will see it.
float scale_inv_of(float amax, const QuantizedOptions& options) {
  const float scale = fp8_scale_inv(amax);
  if (amax == 0) return scale;
  if (options.power_of_two_scales) {
    int exponent = 0;
    const float fraction = std::frexp(scale, &exponent);  // scale = fraction * 2^exponent, fraction in [0.5, 1)
    return std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
  }
  return options.scale_dtype == DType::kBF16 ? f32_from_bf16(bf16_from_f32(scale)) : scale;
}

std::string_view rule_of(Fp8Layout layout) {
  switch (layout) {
    case Fp8Layout::kBlock: return "block_scale";
    case Fp8Layout::kTensor: return "tensor_scale";
    case Fp8Layout::kChannel: return "row_scale";
  }
  return "";
}

TensorSpec scale_spec(const ModelTensor& tensor, const QuantizedOptions& options) {
  const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  switch (options.layout) {
    case Fp8Layout::kBlock:
      return {tensor.name + "_scale_inv",
              options.scale_dtype,
              {(rows + kBlock - 1) / kBlock, (cols + kBlock - 1) / kBlock}};
    case Fp8Layout::kTensor: return {tensor.name + "_scale", options.scale_dtype, {1}};
    case Fp8Layout::kChannel: return {tensor.name + "_scale", options.scale_dtype, {rows, 1}};
  }
  return {};
}

// Codes, scales and statistics of one matrix, unit by unit.
class MatrixQuantizer {
 public:
  MatrixQuantizer(const ModelTensor& tensor, const QuantizedOptions& options)
      : tensor_(tensor), options_(options), rows_(tensor.shape[0]), cols_(tensor.shape[1]) {}

  int64_t units() const { return (rows_ + kUnitRows - 1) / kUnitRows; }

  Status run(ModelWriter& writer, const ModelWriteOptions& write, QuantizedTensorReport& report) {
    std::vector<Worker> workers(static_cast<size_t>(workers_of(write.pool)));
    std::vector<Sums> sums(static_cast<size_t>(units()));
    if (options_.layout == Fp8Layout::kTensor) {
      INVAR_TRY(run_chunks(write.pool, write.cancel, units(), [&](int64_t unit, int worker) -> Status {
        Worker& mine = workers[static_cast<size_t>(worker)];
        INVAR_TRY(load(unit, mine));
        INVAR_ASSIGN(sums[static_cast<size_t>(unit)].amax, amax_of(mine, unit, 0, count_of(unit)));
        return {};
      }));
      for (const Sums& sum : sums) tensor_amax_ = std::max(tensor_amax_, sum.amax);
    }
    INVAR_TRY(run_chunks(write.pool, write.cancel, units(), [&](int64_t unit, int worker) -> Status {
      INVAR_TRY(quantize(unit, workers[static_cast<size_t>(worker)], sums[static_cast<size_t>(unit)], writer));
      if (write.on_written) write.on_written(count_of(unit));
      return {};
    }));
    if (options_.layout == Fp8Layout::kTensor) {
      INVAR_TRY(write_scales(writer, 0, {scale_inv_of(tensor_amax_, options_)}));
    }
    report.rule = rule_of(options_.layout);
    report.scales = element_count(scale_spec(tensor_, options_).shape);
    double signal = 0, noise = 0;
    for (const Sums& sum : sums) {
      signal += sum.signal;
      noise += sum.noise;
      report.amax = std::max(report.amax, sum.amax);
      report.zero_codes += sum.zero_codes;
    }
    report.sqnr_db = noise > 0 ? 10 * std::log10(signal / noise) : std::numeric_limits<double>::infinity();
    return {};
  }

 private:
  struct Worker {
    std::vector<float> values, decoded;
    std::vector<uint8_t> codes;
  };
  struct Sums {
    double signal = 0, noise = 0;
    float amax = 0;
    int64_t zero_codes = 0;
  };

  int64_t rows_of(int64_t unit) const { return std::min(kUnitRows, rows_ - unit * kUnitRows); }
  int64_t count_of(int64_t unit) const { return rows_of(unit) * cols_; }

  Status load(int64_t unit, Worker& worker) const {
    worker.values.resize(static_cast<size_t>(kUnitRows * cols_));
    return tensor_.read(unit * kUnitRows * cols_, count_of(unit), worker.values.data());
  }

  // Of elements [first, first + count) of a unit.
  Result<float> amax_of(const Worker& worker, int64_t unit, int64_t first, int64_t count) const {
    const uint32_t bits = amax_bits_f32(worker.values.data() + first, count);
    if (bits < 0x7F800000u) return std::bit_cast<float>(bits);
    int64_t at = first;
    while (std::isfinite(worker.values[static_cast<size_t>(at)])) ++at;
    const int64_t element = unit * kUnitRows * cols_ + at;
    return Error(Code::kDataLoss, "checkpoint.not_finite",
                 cat("tensor ", in_quotes(tensor_.name), " at [", element / cols_, ", ", element % cols_, "] is ",
                     worker.values[static_cast<size_t>(at)], "; only finite values can be quantised"));
  }

  void encode(Worker& worker, int64_t first, int64_t count, float scale_inv, Sums& sums) const {
    const float* values = worker.values.data() + first;
    uint8_t* codes = worker.codes.data() + first;
    float* decoded = worker.decoded.data();
    convert_f32_to_fp8(DType::kE4M3FN, values, codes, count, scale_inv, Apply::kDivide);
    convert_fp8_to_f32(DType::kE4M3FN, codes, decoded, count, scale_inv);
    for (int64_t i = 0; i < count; ++i) {
      const double value = values[i], difference = value - decoded[i];
      sums.signal += value * value;
      sums.noise += difference * difference;
      if ((codes[i] & 0x7F) == 0 && value != 0) ++sums.zero_codes;
    }
  }

  Status quantize(int64_t unit, Worker& worker, Sums& sums, ModelWriter& writer) const {
    INVAR_TRY(load(unit, worker));
    worker.codes.resize(worker.values.size());
    worker.decoded.resize(static_cast<size_t>(cols_));
    sums = {};
    std::vector<float> scales;
    const int64_t rows = rows_of(unit);
    if (options_.layout == Fp8Layout::kBlock) {
      for (int64_t col = 0; col < cols_; col += kBlock) {
        const int64_t width = std::min(kBlock, cols_ - col);
        float amax = 0;
        for (int64_t row = 0; row < rows; ++row) {
          INVAR_ASSIGN(const float row_amax, amax_of(worker, unit, row * cols_ + col, width));
          amax = std::max(amax, row_amax);
        }
        scales.push_back(scale_inv_of(amax, options_));
        sums.amax = std::max(sums.amax, amax);
        for (int64_t row = 0; row < rows; ++row) encode(worker, row * cols_ + col, width, scales.back(), sums);
      }
      INVAR_TRY(write_scales(writer, unit * static_cast<int64_t>(scales.size()), scales));
    } else if (options_.layout == Fp8Layout::kChannel) {
      for (int64_t row = 0; row < rows; ++row) {
        INVAR_ASSIGN(const float amax, amax_of(worker, unit, row * cols_, cols_));
        scales.push_back(scale_inv_of(amax, options_));
        sums.amax = std::max(sums.amax, amax);
        encode(worker, row * cols_, cols_, scales.back(), sums);
      }
      INVAR_TRY(write_scales(writer, unit * kUnitRows, scales));
    } else {
      sums.amax = tensor_amax_;
      const float scale_inv = scale_inv_of(tensor_amax_, options_);
      for (int64_t row = 0; row < rows; ++row) encode(worker, row * cols_, cols_, scale_inv, sums);
    }
    return writer.write(tensor_.name, unit * kUnitRows * cols_,
                        std::as_bytes(std::span(worker.codes).first(static_cast<size_t>(count_of(unit)))));
  }

  Status write_scales(ModelWriter& writer, int64_t first, const std::vector<float>& scales) const {
    std::vector<std::byte> bytes(
        static_cast<size_t>(bytes_of(options_.scale_dtype, static_cast<int64_t>(scales.size()))));
    convert_from_f32(options_.scale_dtype, scales.data(), bytes.data(), static_cast<int64_t>(scales.size()));
    return writer.write(scale_spec(tensor_, options_).name, bytes_of(options_.scale_dtype, first), bytes);
  }

  const ModelTensor& tensor_;
  const QuantizedOptions& options_;
  int64_t rows_, cols_;
  float tensor_amax_ = 0;  // kTensor only
};

std::string module_of(std::string_view weight) { return std::string(weight.substr(0, weight.rfind('.'))); }

// Writes one unquantised tensor into an open writer.
Status copy_tensor(const ModelTensor& tensor, ModelWriter& writer, const ModelWriteOptions& write) {
  constexpr int64_t kChunk = 1 << 19;
  const int64_t count = element_count(tensor.shape);
  return run_chunks(write.pool, write.cancel, (count + kChunk - 1) / kChunk, [&](int64_t item, int) -> Status {
    const int64_t first = item * kChunk, length = std::min(kChunk, count - first);
    std::vector<float> values(static_cast<size_t>(length));
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(tensor.dtype, length)));
    INVAR_TRY(tensor.read(first, length, values.data()));
    if (!convert_from_f32(tensor.dtype, values.data(), bytes.data(), length)) {
      return Error(Code::kInvalidArgument, "tensor.bad_dtype",
                   cat("tensor ", in_quotes(tensor.name), ": numbers cannot be stored as ", name_of(tensor.dtype)));
    }
    INVAR_TRY(writer.write(tensor.name, bytes_of(tensor.dtype, first), bytes));
    if (write.on_written) write.on_written(length);
    return {};
  });
}

// The folder with every tensor stored as `dtype` and its config saying so.
Result<ModelFolder> with_dtype(const ModelFolder& folder, DType dtype, const std::string& torch_dtype) {
  ModelFolder plain = folder;
  for (ModelTensor& tensor : plain.tensors) tensor.dtype = dtype;
  SideFileOptions rewrite;
  rewrite.torch_dtype = torch_dtype;
  if (!plain.config.empty()) {
    INVAR_ASSIGN(plain.config, rewrite_config(plain.config, "config.json", rewrite));
  }
  return plain;
}

}  // namespace

float fp8_scale_inv(float amax) {
  // Below the smallest normal number the division would lose the scale's own bits.
  return amax == 0 ? 1.0f : std::max(amax / kLargestCode, std::numeric_limits<float>::min());
}

std::vector<std::string> reader_warnings(const QuantizedReport& report) {
  if (report.ragged == 0) return {};
  return {cat(report.ragged, " of ", report.quantized,
              " quantised matrices have a size that is no multiple of 128, so their last blocks are short; "
              "transformers without FP8 hardware does not read those: fp8-channel has no blocks")};
}

bool is_linear_weight(std::string_view name, const std::vector<int64_t>& shape) {
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || !name.ends_with(".weight")) return false;
  // Modules that are tables, heads or routers although their weight has two dimensions.
  static constexpr std::array<std::string_view, 14> kNotLinear = {"embed_tokens",
                                                                  "tok_embeddings",
                                                                  "embeddings",
                                                                  "word_embeddings",
                                                                  "position_embeddings",
                                                                  "wte",
                                                                  "wpe",
                                                                  "embed",
                                                                  "lm_head",
                                                                  "embed_out",
                                                                  "head",
                                                                  "output",
                                                                  "gate",
                                                                  "router"};
  for (std::string_view rest = name; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    if (std::find(kNotLinear.begin(), kNotLinear.end(), part) != kNotLinear.end()) return false;
    if (part.find("norm") != std::string_view::npos || part.starts_with("ln_")) return false;
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  return true;
}

std::string quantization_config_text(const QuantizedOptions& options, const std::vector<std::string>& kept_modules) {
  Json config;
  if (options.layout == Fp8Layout::kBlock) {
    config = {{"quant_method", "fp8"},
              {"fmt", "e4m3"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {kBlock, kBlock}},
              {"modules_to_not_convert", kept_modules}};
    if (options.power_of_two_scales) config["scale_fmt"] = "ue8m0";
  } else {
    const Json weights = {
        {"num_bits", 8},         {"type", "float"},
        {"symmetric", true},     {"strategy", options.layout == Fp8Layout::kTensor ? "tensor" : "channel"},
        {"group_size", nullptr}, {"dynamic", false},
        {"observer", "minmax"}};
    const Json inputs = {{"num_bits", 8},       {"type", "float"},       {"symmetric", true},
                         {"strategy", "token"}, {"group_size", nullptr}, {"dynamic", true}};
    config = {{"quant_method", "compressed-tensors"},
              {"format", "float-quantized"},
              {"quantization_status", "compressed"},
              {"config_groups",
               {{"group_0",
                 {{"targets", Json::array({"Linear"})},
                  {"weights", weights},
                  {"input_activations", inputs},
                  {"output_activations", nullptr},
                  {"format", "float-quantized"}}}}},
              {"ignore", kept_modules},
              {"kv_cache_scheme", nullptr},
              {"global_compression_ratio", nullptr}};
  }
  return json_text(config);
}

Result<QuantizedReport> write_quantized_model(FileSystem& files, const std::string& target, const ModelFolder& folder,
                                              const QuantizedOptions& options, const ModelWriteOptions& write) {
  if (options.scale_dtype != DType::kF32 && options.scale_dtype != DType::kBF16) {
    return Error(Code::kInvalidArgument, "checkpoint.bad_scale_dtype",
                 cat("scales can be stored as F32 or BF16, not ", name_of(options.scale_dtype)));
  }
  std::vector<TensorSpec> specs;
  std::vector<bool> quantized(folder.tensors.size());
  std::vector<std::string> kept_modules = {"lm_head"};  // a tied head has no tensor but is a module all the same
  for (size_t i = 0; i < folder.tensors.size(); ++i) {
    const ModelTensor& tensor = folder.tensors[i];
    const bool linear = is_linear_weight(tensor.name, tensor.shape);
    const bool kept = std::any_of(options.keep.begin(), options.keep.end(),
                                  [&](const std::string& pattern) { return glob_match(pattern, tensor.name); });
    quantized[i] = linear && !kept;
    specs.push_back({tensor.name, quantized[i] ? DType::kE4M3FN : tensor.dtype, tensor.shape});
    if (quantized[i]) specs.push_back(scale_spec(tensor, options));
    const bool is_module = tensor.shape.size() == 2 && tensor.name.ends_with(".weight") &&
                           tensor.name.find("embed") == std::string::npos && !tensor.name.starts_with("lm_head.");
    if (!quantized[i] && is_module) kept_modules.push_back(module_of(tensor.name));
  }

  // Copies first: an error in them must leave no FP8 folder behind.
  std::vector<StagedDirectory> staged;
  const auto add_copy = [&](const std::string& path, DType dtype, const std::string& torch_dtype) -> Status {
    if (path.empty()) return {};
    INVAR_ASSIGN(auto stage, StagedDirectory::create(files, path));
    INVAR_ASSIGN(const ModelFolder plain, with_dtype(folder, dtype, torch_dtype));
    INVAR_TRY(write_model_files(files, stage.path(), plain, write).status());
    staged.push_back(std::move(stage));
    return {};
  };
  INVAR_TRY(add_copy(options.masters_copy, DType::kF32, "float32"));
  INVAR_TRY(add_copy(options.bf16_copy, DType::kBF16, "bfloat16"));

  INVAR_ASSIGN(auto stage, StagedDirectory::create(files, target));
  INVAR_ASSIGN(auto writer, ModelWriter::create(files, stage.path(), ShardPlan::by_size(specs, write.max_shard_bytes)));
  QuantizedReport report;
  int64_t measured = 0;
  for (size_t i = 0; i < folder.tensors.size(); ++i) {
    const ModelTensor& tensor = folder.tensors[i];
    QuantizedTensorReport line;
    line.name = tensor.name;
    line.rule = "copy";
    if (quantized[i]) {
      INVAR_TRY(MatrixQuantizer(tensor, options).run(writer, write, line));
      ++report.quantized;
      const bool whole_blocks = tensor.shape[0] % kBlock == 0 && tensor.shape[1] % kBlock == 0;
      report.ragged += options.layout == Fp8Layout::kBlock && !whole_blocks;
      if (std::isfinite(line.sqnr_db)) {  // a matrix of zeros loses nothing
        report.mean_sqnr_db += line.sqnr_db;
        ++measured;
      }
    } else {
      INVAR_TRY(copy_tensor(tensor, writer, write));
    }
    report.tensors.push_back(std::move(line));
  }
  if (measured > 0) report.mean_sqnr_db /= static_cast<double>(measured);
  report.bytes = writer.plan().total_bytes();
  INVAR_TRY(writer.finish(write.durable));

  if (!folder.config.empty()) {
    SideFileOptions rewrite;
    rewrite.torch_dtype = "bfloat16";
    if (report.quantized > 0) rewrite.quantization_config = quantization_config_text(options, kept_modules);
    INVAR_ASSIGN(std::string config, rewrite_config(folder.config, "config.json", rewrite));
    INVAR_TRY(write_side_files(files, {{"config.json", std::move(config), ""}}, files, stage.path(), write.durable));
  }
  FileSystem& from = folder.side_file_system != nullptr ? *folder.side_file_system : files;
  INVAR_TRY(write_side_files(files, folder.side_files, from, stage.path(), write.durable));
  if (options.check) INVAR_TRY(options.check(stage.path()));
  for (StagedDirectory& copy : staged) INVAR_TRY(copy.commit());
  INVAR_TRY(stage.commit());
  return report;
}

}  // namespace invar
