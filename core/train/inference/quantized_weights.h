// Weights of a model from a folder whose matrices may be stored in FP8 with scales: each is decoded in FP32 while it is
// read, by the same rules and the same arithmetic as conversion.
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/layout.h"
#include "core/checkpoint/tile.h"
#include "core/container/checkpoint_folder.h"
#include "core/model/weight_source.h"

namespace invar {

class QuantizedWeights : public WeightSource {
 public:
  // Names and shapes are compared with the model's before anything is read: model.missing_tensor, model.shape_mismatch,
  // model.dtype, model.unexpected_tensor.
  static Result<std::unique_ptr<QuantizedWeights>> open(FileSystem& files, const std::string& path,
                                                        const ModelShape& shape);

  const std::string& layout() const { return layout_.name; }  // "none" when nothing is quantised
  // How parameter number `index` is stored.
  const TensorPlan& plan(size_t index) const { return *plans_[index]; }
  const CheckpointFolder& folder() const { return *folder_; }
  // Runs of packed elements begin and end on whole bytes.
  Status read(size_t index, const ParameterSpec& parameter, int64_t first, int64_t count, float* out) override;

 private:
  explicit QuantizedWeights(std::unique_ptr<CheckpointFolder> folder);
  Status read_plain(const TensorPlan& plan, int64_t first, int64_t count, float* out);

  std::unique_ptr<CheckpointFolder> folder_;  // layout_ points into it
  Layout layout_;
  std::vector<const TensorPlan*> plans_;  // by parameter number
  Tile tile_;
  std::vector<std::byte> staging_;
};

}  // namespace invar
