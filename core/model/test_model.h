// Small models and batches for tests. Thread rule: one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/base/rng.h"
#include "core/model/decoder.h"
#include "core/model/reference_decoder.h"
#include "core/numerics/normal.h"

namespace invar::testing {

inline ModelShape small_shape(bool tied = true) {
  ModelShape shape;
  shape.vocab = 61;
  shape.hidden = 24;
  shape.layers = 2;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 8;  // not hidden / heads
  shape.intermediate = 40;
  shape.norm_eps = 1e-5;
  shape.max_positions = 64;
  shape.tie_embeddings = tied;
  return shape;
}

// One of each family, small, with every trait that its configs can ask for.
inline ModelShape small_shape_of(const std::string& family) {
  ModelShape shape = small_shape(family != "qwen2");
  shape.family = family;
  if (family == "llama") {
    shape.rope_scaling = {.kind = RopeKind::kLlama3, .factor = 8, .original_positions = 16};
  } else if (family == "mistral") {
    shape.windows = {5, 5};
  } else if (family == "qwen2") {
    shape.rope_scaling = {.kind = RopeKind::kYarn, .factor = 4, .original_positions = 16, .attention_factor = 1.1386};
  } else if (family == "gemma2") {
    shape.windows = {4, 0};
    shape.attention_scale = 0.25;
  } else if (family == "gemma3_text") {
    shape.windows = {4, 0};
    shape.local_rope_theta = 100;
    shape.rope_scaling = {.kind = RopeKind::kLinear, .factor = 8};
  }
  shape = complete_shape(shape);
  // Below the caps that real models have, so that they bend these small scores too.
  if (shape.attention_soft_cap > 0) shape.attention_soft_cap = 0.5, shape.logit_soft_cap = 2;
  return shape;
}

// Larger values than a real start, and gains that are not 1, so that every path matters.
class TestWeights : public WeightSource {
 public:
  explicit TestWeights(float deviation = 0.2f) : deviation_(deviation) {}
  Status read(size_t index, const ParameterSpec& parameter, int64_t first, int64_t count, float* out) override {
    for (int64_t i = 0; i < count; ++i) {
      const float value = deviation_ * normal_at(11, index, static_cast<uint64_t>(first + i));
      out[i] = parameter.kind == ParameterKind::kVector ? parameter.initial + value : value;
    }
    return {};
  }

 private:
  float deviation_;
};

struct TestBatch {
  std::vector<int32_t> ids, targets, offsets;
  MicroBatch view() const { return {ids, targets, offsets, {}}; }
};

// Sequences of the given lengths; every fifth token has no target.
inline TestBatch make_batch(int64_t vocab, const std::vector<int32_t>& lengths, uint64_t seed = 3) {
  TestBatch batch;
  Rng rng(seed);
  batch.offsets = {0};
  for (int32_t length : lengths) {
    for (int32_t t = 0; t < length; ++t) {
      batch.ids.push_back(static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(vocab))));
      batch.targets.push_back(t % 5 == 4 ? -1 : static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(vocab))));
    }
    batch.offsets.push_back(batch.offsets.back() + length);
  }
  return batch;
}

inline std::shared_ptr<Device> open_device(int threads = 2, DeviceOptions options = {}) {
  auto device = Device::open("cpu", std::make_shared<ThreadPool>(threads), std::move(options));
  EXPECT_TRUE(device.ok()) << device.status().message();
  return *device;
}

inline ModelOptions options_for(Recipe recipe, int64_t max_tokens = 64) {
  ModelOptions options;
  options.precision.recipe = recipe;
  options.max_tokens = max_tokens;
  return options;
}

inline std::unique_ptr<DecoderModel> make_model(const ModelShape& shape, const ModelOptions& options, int threads = 2) {
  auto model = DecoderModel::create(open_device(threads), shape, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  (*model)->poison_released(true);
  TestWeights weights;
  EXPECT_TRUE((*model)->load(weights, {}).ok());
  return *std::move(model);
}

inline LossSum must_step(Model& model, const TestBatch& batch, const WindowPlace& place = {}) {
  const auto loss = model.forward_backward(batch.view(), place);
  EXPECT_TRUE(loss.ok()) << loss.status().message();
  return loss.ok() ? *loss : LossSum{};
}

inline std::vector<std::vector<float>> gradients_of(const Model& model) {
  std::vector<std::vector<float>> list;
  for (const Parameter& parameter : model.parameters()) {
    list.emplace_back(parameter.gradient, parameter.gradient + parameter.count);
  }
  return list;
}

inline ReferenceWeights reference_weights(const ModelShape& shape) {
  ReferenceWeights weights;
  TestWeights source;
  const auto parameters = parameters_of(shape);
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::vector<float> values(static_cast<size_t>(parameters[i].count()));
    EXPECT_TRUE(source.read(i, parameters[i], 0, parameters[i].count(), values.data()).ok());
    weights[parameters[i].name] = {values.begin(), values.end()};
  }
  return weights;
}

}  // namespace invar::testing
