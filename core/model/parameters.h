// A model's parameters in device memory: working weights, main gradients, packed and quantised copies.
//
// Parameters that are used as one product (query, key, value; gate, up) lie behind one another, so that they are one
// matrix for the product and still separate tensors for everyone else. Copies are made at the first use after
// weights_changed(), and quantised values and their scale are replaced together.
// Invariant: in an accumulation window the first contribution to a gradient overwrites it, later ones add.
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/device/device.h"
#include "core/memory/arena.h"
#include "core/model/model.h"
#include "core/nn/attention.h"
#include "core/nn/head.h"
#include "core/nn/mlp.h"
#include "core/nn/operation_profile.h"
#include "core/nn/parameter_access.h"

namespace invar {

struct LayerWeights {
  AttentionWeights attention;
  MlpWeights mlp;
};

class ParameterStore : public ParameterAccess {
 public:
  // `arena` tells whether a pass is only planned. Both outlive the store.
  static Result<std::unique_ptr<ParameterStore>> create(Device& device, const Arena& arena, const ModelShape& shape,
                                                        const ModelOptions& options);

  std::span<const Parameter> parameters() const { return parameters_; }
  std::span<const LayerWeights> layers() const { return layers_; }
  WeightId embedding() const { return embedding_; }
  HeadWeights head() const { return head_; }
  ModelMemory memory() const { return memory_; }

  void profile_into(OperationProfile* profile) { profile_ = profile; }
  void use_recipe(Recipe recipe);
  void weights_changed();
  void begin_micro_batch(bool first, bool last);
  Result<double> gradient_norm_squared();
  Status check_reached() const;

  Result<WeightView> weight(WeightId id, WeightUse use) override;
  const float* gain(WeightId id) override;
  const LinearPolicy& policy(WeightId id) const override { return weights_[static_cast<size_t>(id)].policy; }
  Result<GradientTarget> gradient(WeightId id) override;
  Result<float*> gradient_to_add(WeightId id) override;

 private:
  // A working copy for one direction of the product.
  struct Packed {
    void* data = nullptr;
    bool fresh = false;
    float scale_inv = 1.0f;
  };
  struct Weight {
    std::vector<size_t> members;  // parameters, in the order of their rows
    int64_t count = 0;
    Matrix values;
    float* gradient = nullptr;
    bool is_linear = false;  // a product of a decoder layer
    LinearPolicy policy;
    Packed packed[2];          // by WeightUse
    bool written = false;      // in this window
    bool has_squares = false;  // sum_squares is of the finished gradient
    double sum_squares = 0;
  };

  ParameterStore(Device& device, const Arena& arena, const ModelOptions& options)
      : device_(device), arena_(arena), options_(options) {}
  OperandFormat served_format(const Weight& weight) const;
  WeightId add_weight(std::vector<size_t> members, bool is_linear);
  Status allocate();
  Status pack(Weight& weight, WeightUse use);
  Status quantise(Weight& weight, const OperandFormat& format, float* scale_inv);

  Device& device_;
  const Arena& arena_;
  ModelOptions options_;
  std::vector<Parameter> parameters_;
  std::vector<Weight> weights_;
  std::vector<LayerWeights> layers_;
  WeightId embedding_ = -1;
  HeadWeights head_;
  DeviceBuffer working_, gradients_, packed_, quantised_;
  OperationProfile* profile_ = nullptr;  // of packing and norms, or null
  bool last_ = false;
  ModelMemory memory_;
};

}  // namespace invar
