// A model for tests of what surrounds one: two parameters, gradients and losses by the test's hand.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/model.h"

namespace invar {

class FakeModel : public Model {
 public:
  static constexpr int64_t kMatrix = 8, kGain = 4;

  explicit FakeModel(std::shared_ptr<Device> device) : device_(std::move(device)), gain_(kGain, 1.0f) {
    ParameterSpec matrix, gain;
    matrix.name = "w";
    matrix.shape = {2, 4};
    gain.name = "g";
    gain.shape = {4};
    gain.kind = ParameterKind::kVector;
    parameters_ = {{matrix, kMatrix, DType::kBF16, matrix_.data(), matrix_gradient_.data()},
                   {gain, kGain, DType::kF32, gain_.data(), gain_gradient_.data()}};
  }

  // What each micro-batch adds to every element of both gradients, and its loss.
  struct Contribution {
    float matrix = 0, gain = 0;
    LossSum loss;
  };
  std::vector<Contribution> script;  // one a micro-batch; the last is repeated

  const ModelShape& shape() const override { return shape_; }
  const ModelOptions& options() const override { return options_; }
  Device& device() const override { return *device_; }
  std::span<const Parameter> parameters() const override { return parameters_; }
  ModelMemory memory() const override { return {}; }
  std::vector<Arena::Report> memory_plan() const override { return {}; }
  Status load(WeightSource& source, std::span<float* const> masters) override {
    INVAR_TRY(source.read(0, parameters_[0].spec, 0, kMatrix, masters[0]));
    INVAR_TRY(source.read(1, parameters_[1].spec, 0, kGain, gain_.data()));
    return device_->cast(matrix_.data(), DType::kBF16, masters[0], DType::kF32, kMatrix);
  }
  Status weights_changed() override {
    ++weight_changes;
    return {};
  }
  Status use_recipe(Recipe recipe) override {
    recipe_ = recipe;
    return {};
  }
  Recipe recipe() const override { return recipe_; }
  void profile(bool) override {}
  const OperationProfile& profile() const override { return profile_; }
  Result<LossSum> forward_backward(const MicroBatch&, const WindowPlace& place) override {
    const Contribution& now = script[std::min(calls, script.size() - 1)];
    ++calls;
    for (float& g : matrix_gradient_) g = (place.first ? 0 : g) + now.matrix;
    for (float& g : gain_gradient_) g = (place.first ? 0 : g) + now.gain;
    return now.loss;
  }
  Result<LossSum> evaluate(const MicroBatch&, const TokenResults&) override { return LossSum{}; }
  Status logits(const MicroBatch&, float*, const LayerHook&) override { return {}; }
  Status end_window() override { return {}; }
  Result<double> gradient_norm_squared() override {
    double sum = 0;
    for (double g : matrix_gradient_) sum += g * g;
    for (double g : gain_gradient_) sum += g * g;
    return sum;
  }
  Status check_reached() const override { return {}; }
  Result<std::unique_ptr<KeyValueCache>> new_cache(int64_t) override {
    return Error(Code::kUnimplemented, "fake", "no cache");
  }
  Status extend(KeyValueCache&, std::span<const int32_t>, float*) override { return {}; }

  std::vector<uint16_t> working() const { return matrix_; }
  std::vector<float> gain() const { return gain_; }

  int weight_changes = 0;
  size_t calls = 0;

 private:
  std::shared_ptr<Device> device_;
  ModelShape shape_;
  ModelOptions options_;
  OperationProfile profile_;
  Recipe recipe_ = Recipe::kBf16;
  std::vector<uint16_t> matrix_ = std::vector<uint16_t>(kMatrix);
  std::vector<float> gain_;
  std::vector<float> matrix_gradient_ = std::vector<float>(kMatrix);
  std::vector<float> gain_gradient_ = std::vector<float>(kGain);
  std::vector<Parameter> parameters_;
};

}  // namespace invar
