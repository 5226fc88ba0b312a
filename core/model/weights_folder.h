// Weights from a folder of safetensors files, F32, BF16 or F16.
//
//   INVAR_ASSIGN(ModelShape shape, read_model_shape(posix_files(), "SmolLM2-135M"));
//   INVAR_ASSIGN(auto weights, FolderWeights::open(posix_files(), "SmolLM2-135M", shape));
//   INVAR_TRY(model->load(*weights));
//
// Names, shapes and dtypes of all tensors are compared with the model's when the folder is opened, before anything is
// read. Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/container/checkpoint_folder.h"
#include "core/model/weight_source.h"

namespace invar {

// From `folder`/config.json.
Result<ModelShape> read_model_shape(FileSystem& files, const std::string& folder);

// model.shape_mismatch unless the stored shape is the parameter's; says so when it is the vocabularies that differ.
Status check_stored_shape(const std::string& folder, const ParameterSpec& parameter, const std::vector<int64_t>& stored,
                          const ModelShape& shape);
// model.unexpected_tensor unless `name` is among `known` (sorted) or a buffer that follows from the config.
Status check_expected(const std::string& folder, const std::string& name, const std::vector<int64_t>& stored,
                      const std::vector<std::string>& known, const ModelShape& shape);

class FolderWeights : public WeightSource {
 public:
  // Reasons: model.missing_tensor, model.shape_mismatch, model.dtype, model.unexpected_tensor.
  static Result<std::unique_ptr<FolderWeights>> open(FileSystem& files, const std::string& folder,
                                                     const ModelShape& shape);
  static Result<std::unique_ptr<FolderWeights>> create(CheckpointFolder folder, const ModelShape& shape);

  Status read(size_t index, const ParameterSpec& parameter, int64_t first, int64_t count, float* out) override;

 private:
  explicit FolderWeights(CheckpointFolder folder) : folder_(std::move(folder)) {}

  CheckpointFolder folder_;
  std::vector<const TensorInfo*> tensors_;  // by parameter number
  std::vector<std::byte> staging_;
};

}  // namespace invar
