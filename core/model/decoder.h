// The decoder-only model: embedding, layers, head, in both directions. Thread rule: as Model.
#pragma once

#include <memory>
#include <vector>

#include "core/memory/arena.h"
#include "core/model/model.h"
#include "core/model/parameters.h"
#include "core/nn/context.h"

namespace invar {

class DecoderModel : public Model {
 public:
  static Result<std::unique_ptr<DecoderModel>> create(std::shared_ptr<Device> device, const ModelShape& shape,
                                                      const ModelOptions& options);

  const ModelShape& shape() const override { return shape_; }
  const ModelOptions& options() const override { return options_; }
  Device& device() const override { return *device_; }
  std::span<const Parameter> parameters() const override { return store_->parameters(); }
  ModelMemory memory() const override;
  std::vector<Arena::Report> memory_plan() const override { return arena_.reports(); }

  Status load(WeightSource& source, std::span<float* const> masters) override;
  Status weights_changed() override;
  Status use_recipe(Recipe recipe) override;
  Recipe recipe() const override { return recipes_[active_]; }

  void profile(bool on) override;
  const OperationProfile& profile() const override { return profile_; }

  Result<LossSum> forward_backward(const MicroBatch& batch, const WindowPlace& place) override;
  Result<LossSum> evaluate(const MicroBatch& batch, const TokenResults& results) override;
  Status logits(const MicroBatch& batch, float* out, const LayerHook& hook = {}) override;
  Status end_window() override;
  Result<double> gradient_norm_squared() override;
  Status check_reached() const override;

  Result<std::unique_ptr<KeyValueCache>> new_cache(int64_t capacity) override;
  Status extend(KeyValueCache& cache, std::span<const int32_t> ids, float* logits) override;

  // Fills memory that a pass has released with not-a-number: for tests of lifetimes.
  void poison_released(bool on) { arena_.poison_released(on); }

 private:
  // A micro-batch in device memory.
  struct DeviceBatch {
    Scratch ids, targets, positions, offsets;
  };
  enum Program : int { kTrain, kEvaluate, kLogits, kExtend, kPrograms };

  DecoderModel(std::shared_ptr<Device> device, const ModelShape& shape, const ModelOptions& options);
  Status plan();
  Status make_tables();
  Status check_batch(const MicroBatch& batch, bool with_targets) const;
  MicroBatch planning_batch() const;
  // Runs `pass` as the program of the active recipe.
  template <typename Pass>
  Status run(Program program, const Pass& pass) {
    INVAR_TRY(arena_.begin(programs_[active_ * kPrograms + program]));
    INVAR_TRY(pass());
    return arena_.end();
  }

  Result<DeviceBatch> upload(const MicroBatch& batch, bool with_targets);
  Status embed(const DeviceBatch& batch);
  // Leaves the stream in kInput of layer `layers`.
  Status forward(bool save, const LayerCache* caches, const LayerHook& hook = {});
  Status train_pass(const MicroBatch& batch, float grad_scale, HeadResult& result);
  Status evaluate_pass(const MicroBatch& batch, const TokenResults& results, HeadResult& result);
  Status logits_pass(const MicroBatch& batch, float* out, const LayerHook& hook);
  Status extend_pass(KeyValueCache* cache, std::span<const int32_t> ids, float* logits);

  std::shared_ptr<Device> device_;
  ModelShape shape_;
  ModelOptions options_;
  std::vector<Recipe> recipes_;
  size_t active_ = 0;
  Arena arena_;
  OperationProfile profile_;
  DeviceBuffer arena_memory_, rope_, local_rope_, ones_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Context> ctx_;
  std::vector<AttentionShape> attention_;  // by layer
  MlpShape mlp_;
  HeadShape head_;
  std::vector<int> programs_;       // [recipes][kPrograms]
  std::vector<int32_t> positions_;  // host staging [max_tokens]
  bool window_open_ = false;        // between a first and a last micro-batch
  bool window_complete_ = false;
};

}  // namespace invar
