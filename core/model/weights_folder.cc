#include "core/model/weights_folder.h"

#include <algorithm>
#include <cstring>

#include "core/base/glob.h"
#include "core/numerics/formats.h"

namespace invar {
namespace {

// Buffers that older checkpoints carry and that follow from the config.
bool is_derived(std::string_view name) { return glob_match("*.rotary_emb.inv_freq", name); }

const TensorInfo* find_parameter(const CheckpointFolder& folder, const ParameterSpec& parameter) {
  const TensorInfo* tensor = folder.find(parameter.name);
  for (const std::string& alias : parameter.aliases) {
    if (tensor == nullptr) tensor = folder.find(alias);
  }
  return tensor;
}

}  // namespace

Result<ModelShape> read_model_shape(FileSystem& files, const std::string& folder) {
  constexpr int64_t kLargest = 16 << 20;
  const std::string path = join_path(folder, "config.json");
  INVAR_ASSIGN(const std::string text, read_text(files, path, kLargest));
  return parse_model_config(text, path);
}

Status check_stored_shape(const std::string& folder, const ParameterSpec& parameter, const std::vector<int64_t>& stored,
                          const ModelShape& shape) {
  if (stored == parameter.shape) return {};
  const bool vocabulary =
      stored.size() == 2 && parameter.shape.size() == 2 && parameter.layer < 0 && stored[1] == parameter.shape[1];
  const std::string why = vocabulary ? cat(": the weights' vocabulary has ", stored[0],
                                           " entries, the config's \"vocab_size\" is ", shape.vocab)
                                     : std::string();
  return Error(Code::kInvalidArgument, "model.shape_mismatch",
               cat(folder, ": tensor ", in_quotes(parameter.name), " has shape ", shape_text(stored), ": expected ",
                   shape_text(parameter.shape), why));
}

Status check_expected(const std::string& folder, const std::string& name, const std::vector<int64_t>& stored,
                      const std::vector<std::string>& known, const ModelShape& shape) {
  if (std::binary_search(known.begin(), known.end(), name) || is_derived(name)) return {};
  return Error(Code::kInvalidArgument, "model.unexpected_tensor",
               cat(folder, ": tensor ", in_quotes(name), " of shape ", shape_text(stored), " is no part of a ",
                   shape.family, " model with this config"));
}

Result<std::unique_ptr<FolderWeights>> FolderWeights::open(FileSystem& files, const std::string& path,
                                                           const ModelShape& shape) {
  INVAR_ASSIGN(CheckpointFolder folder, CheckpointFolder::open(files, path));
  return create(std::move(folder), shape);
}

Result<std::unique_ptr<FolderWeights>> FolderWeights::create(CheckpointFolder folder, const ModelShape& shape) {
  std::unique_ptr<FolderWeights> weights(new FolderWeights(std::move(folder)));
  const CheckpointFolder& tensors = weights->folder_;
  std::vector<std::string> known;
  for (const ParameterSpec& parameter : parameters_of(shape)) {
    const TensorInfo* tensor = find_parameter(tensors, parameter);
    const std::string label = cat(tensors.path(), ": tensor ", in_quotes(parameter.name));
    if (tensor == nullptr) {
      return Error(Code::kInvalidArgument, "model.missing_tensor",
                   cat(label, " is missing: the model needs it with shape ", shape_text(parameter.shape)));
    }
    INVAR_TRY(check_stored_shape(tensors.path(), parameter, tensor->shape, shape));
    if (tensor->dtype != DType::kF32 && tensor->dtype != DType::kBF16 && tensor->dtype != DType::kF16) {
      return Error(Code::kInvalidArgument, "model.dtype",
                   cat(label, " is ", name_of(tensor->dtype),
                       ": expected F32, BF16 or F16; convert the checkpoint first (invar convert)"));
    }
    weights->tensors_.push_back(tensor);
    known.push_back(parameter.name);
    known.insert(known.end(), parameter.aliases.begin(), parameter.aliases.end());
  }
  std::sort(known.begin(), known.end());
  for (const TensorInfo& tensor : tensors.tensors()) {
    INVAR_TRY(check_expected(tensors.path(), tensor.name, tensor.shape, known, shape));
  }
  return weights;
}

Status FolderWeights::read(size_t index, const ParameterSpec& parameter, int64_t first, int64_t count, float* out) {
  if (index >= tensors_.size() || first < 0 || count < 0 || first + count > parameter.count()) {
    return Error(Code::kOutOfRange, "model.range",
                 cat("parameter ", index, ": no elements [", first, ", ", first + count, ")"));
  }
  const TensorInfo& tensor = *tensors_[index];
  const int64_t offset = bytes_of(tensor.dtype, first), bytes = bytes_of(tensor.dtype, count);
  if (tensor.dtype == DType::kF32) {
    return folder_.read(tensor, offset, {reinterpret_cast<std::byte*>(out), static_cast<size_t>(bytes)});
  }
  staging_.resize(static_cast<size_t>(bytes));
  INVAR_TRY(folder_.read(tensor, offset, staging_));
  for (int64_t i = 0; i < count; ++i) {
    uint16_t code;
    std::memcpy(&code, staging_.data() + 2 * i, sizeof code);
    out[i] = tensor.dtype == DType::kBF16 ? f32_from_bf16(code) : decode(tensor.dtype, code);
  }
  return {};
}

}  // namespace invar
