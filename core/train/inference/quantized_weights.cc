#include "core/train/inference/quantized_weights.h"

#include <algorithm>
#include <cstring>

#include "core/model/weights_folder.h"

namespace invar {

QuantizedWeights::QuantizedWeights(std::unique_ptr<CheckpointFolder> folder)
    : folder_(std::move(folder)), tile_(*folder_, {.target = DType::kF32, .level = cpu_level()}) {}

Result<std::unique_ptr<QuantizedWeights>> QuantizedWeights::open(FileSystem& files, const std::string& path,
                                                                 const ModelShape& shape) {
  INVAR_ASSIGN(auto opened, CheckpointFolder::open(files, path));
  std::unique_ptr<QuantizedWeights> weights(
      new QuantizedWeights(std::make_unique<CheckpointFolder>(std::move(opened))));
  INVAR_ASSIGN(weights->layout_, classify(*weights->folder_, {}));
  std::vector<std::string> known;
  for (const ParameterSpec& parameter : parameters_of(shape)) {
    const TensorPlan* found = nullptr;
    std::vector<std::string> names = {parameter.name};
    names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
    for (const TensorPlan& plan : weights->layout_.tensors) {
      if (std::find(names.begin(), names.end(), plan.name) != names.end()) found = &plan;
    }
    if (found == nullptr) {
      return Error(Code::kInvalidArgument, "model.missing_tensor",
                   cat(path, ": tensor \"", parameter.name, "\" is missing"));
    }
    INVAR_TRY(check_stored_shape(path, parameter, found->shape, shape));
    known.insert(known.end(), names.begin(), names.end());
    const DType dtype = found->source->dtype;
    if (!found->quantized() && dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
      return Error(Code::kInvalidArgument, "model.dtype",
                   cat(path, ": tensor \"", found->name, "\" is ", name_of(dtype), ", expected F32, BF16 or F16"));
    }
    weights->plans_.push_back(found);
  }
  std::sort(known.begin(), known.end());
  for (const TensorPlan& plan : weights->layout_.tensors) {
    INVAR_TRY(check_expected(path, plan.name, plan.shape, known, shape));
  }
  return weights;
}

Status QuantizedWeights::read(size_t index, const ParameterSpec&, int64_t first, int64_t count, float* out) {
  const TensorPlan& plan = *plans_[index];
  if (!plan.quantized()) return read_plain(plan, first, count, out);
  for (int64_t done = 0; done < count;) {
    const int64_t here = std::min(kTileElements, count - done);
    TileStats stats;
    if (plan.decodes()) {
      INVAR_TRY(tile_.convert_decoded(plan, first + done, here, reinterpret_cast<std::byte*>(out + done), &stats));
      done += here;
      continue;
    }
    staging_.resize(static_cast<size_t>(plan.stored_bytes(here)));
    INVAR_TRY(folder_->read(*plan.source, plan.stored_bytes(first + done), staging_));
    INVAR_TRY(tile_.convert(plan, first + done, staging_, reinterpret_cast<std::byte*>(out + done), &stats));
    done += here;
  }
  return {};
}

Status QuantizedWeights::read_plain(const TensorPlan& plan, int64_t first, int64_t count, float* out) {
  const DType dtype = plan.source->dtype;
  for (int64_t done = 0; done < count;) {
    const int64_t here = std::min(kTileElements, count - done);
    staging_.resize(static_cast<size_t>(bytes_of(dtype, here)));
    INVAR_TRY(folder_->read(*plan.source, bytes_of(dtype, first + done), staging_));
    if (dtype == DType::kF32) {
      std::memcpy(out + done, staging_.data(), staging_.size());
    } else {
      TileStats stats;
      tile_.cast(dtype, staging_, reinterpret_cast<std::byte*>(out + done), &stats);
    }
    done += here;
  }
  return {};
}

}  // namespace invar
