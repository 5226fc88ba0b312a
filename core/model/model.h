// A language model built from layers: parameters, main gradients, forward and backward.
//
//   INVAR_ASSIGN(auto model, Model::create(device, shape, options));
//   INVAR_TRY(model->load(source, masters));
//   for (micro-batch i of m) INVAR_ASSIGN(loss, model->forward_backward(batch, {.first = i == 0, .last = i == m - 1}));
//   INVAR_ASSIGN(double norm_squared, model->gradient_norm_squared());   // finite: every gradient is
//   ... optimizer writes parameters()[k].working from its masters ...
//   INVAR_TRY(model->weights_changed());
//
// Invariant: after create, nothing is allocated: one arena, planned for max_tokens, holds activations, saved tensors
// and scratch. Gradients hold the sum over an accumulation window; its first micro-batch overwrites them, so nobody
// zeroes them. Same inputs give the same bits at any number of threads.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/device/device.h"
#include "core/family/family.h"
#include "core/memory/arena.h"
#include "core/model/weight_source.h"
#include "core/nn/operation_profile.h"
#include "core/precision/recipe.h"

namespace invar {

enum class Recompute : int {
  kNone,   // every saved tensor is kept
  kLayer,  // only each layer's input is kept; the layer runs forward again in the backward pass
};

// How a server quantises what enters a linear layer.
struct ServedInput {
  Granularity granularity = Granularity::kNone;  // kTensor, kRow (one scale a token), kBlock (1 x block_cols)
  DType format = DType::kE4M3FN;
  int64_t block_cols = 128;
  float scale_inv = 0;        // kTensor: a static scale; 0: from the tensor itself
  bool power_of_two = false;  // dynamic scales are rounded up to powers of two
};

struct ModelOptions {
  PrecisionPlan precision;  // precision.recipe is in force at first
  // Further recipes that use_recipe may put in force (a ladder's BF16), so that the arena fits each. Their activation
  // dtype equals precision.recipe's.
  std::vector<Recipe> other_recipes;
  bool trainable = true;      // false: no gradients, no packs for the backward pass
  int64_t max_tokens = 0;     // rows of the largest micro-batch (training and evaluation)
  int64_t max_positions = 0;  // rows of the rope table; 0: max_tokens
  Recompute recompute = Recompute::kNone;
  // Empty, or the scheme by weight under which a checkpoint is measured as it is served: inputs are quantised and
  // decoded in FP32 (one rounding), products are FP32. Needs recipe kFp32 and trainable false. A fused product takes
  // its first member's scheme and the largest static scale.
  std::function<ServedInput(const ParameterSpec& weight)> served_input;
};

// A micro-batch: `tokens` rows of packed sequences.
struct MicroBatch {
  std::span<const int32_t> ids;        // [tokens]
  std::span<const int32_t> targets;    // [tokens], the next token; negative: no loss there
  std::span<const int32_t> offsets;    // [sequences + 1], from 0 to tokens
  std::span<const int32_t> positions;  // [tokens], or empty: counted from each sequence's start
};

struct WindowPlace {
  bool first = true;        // gradients are overwritten
  bool last = true;         // gradients are complete afterwards: their norm is taken
  float grad_scale = 1.0f;  // multiplies the gradient of the sum of token losses
};

struct LossSum {
  double sum = 0;     // of token losses, natural logarithm
  int64_t count = 0;  // tokens with a target
};

struct TokenResults {
  float* loss = nullptr;    // [tokens], 0 where there is no target
  int32_t* top1 = nullptr;  // [tokens], the most likely token
};

using LayerHook = std::function<Status(int64_t layer, const float* stream)>;

struct Parameter {
  ParameterSpec spec;
  int64_t count = 0;
  // What the products read. F32 (norm gains always; everything when activations are F32) is its own master: an
  // optimizer steps it in place. BF16 is written from an FP32 master that the optimizer owns.
  DType dtype = DType::kF32;
  void* working = nullptr;
  float* gradient = nullptr;  // FP32 main gradient, 64-byte aligned for the first of a fused group; null: not trainable
};

struct ModelMemory {
  int64_t working = 0, gradients = 0, packed = 0, arena = 0;  // bytes
  int64_t total() const { return working + gradients + packed + arena; }
};

// Keys and values of one sequence, for generation: Model::new_cache, Model::extend.
class KeyValueCache {
 public:
  virtual ~KeyValueCache() = default;
  virtual int64_t capacity() const = 0;
  virtual int64_t length() const = 0;
  // Forgets everything from position `length` on.
  virtual void truncate(int64_t length) = 0;
};

class Model {
 public:
  static Result<std::unique_ptr<Model>> create(std::shared_ptr<Device> device, const ModelShape& shape,
                                               const ModelOptions& options);
  virtual ~Model() = default;

  virtual const ModelShape& shape() const = 0;
  virtual const ModelOptions& options() const = 0;
  virtual Device& device() const = 0;
  // In the order of parameters_of(shape); pointers stay as long as the model.
  virtual std::span<const Parameter> parameters() const = 0;
  virtual ModelMemory memory() const = 0;
  // What the arena holds in each kind of pass.
  virtual std::vector<Arena::Report> memory_plan() const = 0;

  // Fills the working weights. masters: empty, or one pointer a parameter, null where the working weight is F32;
  // each receives the unrounded FP32 values.
  virtual Status load(WeightSource& source, std::span<float* const> masters = {}) = 0;
  // After anyone wrote working weights: packs and quantised copies are made again at the next use.
  virtual Status weights_changed() = 0;
  // Puts `recipe` in force from the next micro-batch on; not inside an accumulation window. It must be one of
  // options().precision.recipe and other_recipes.
  virtual Status use_recipe(Recipe recipe) = 0;
  virtual Recipe recipe() const = 0;

  // Takes the time of every device operation from now on, or stops; starting forgets what was taken.
  virtual void profile(bool on) = 0;
  virtual const OperationProfile& profile() const = 0;

  virtual Result<LossSum> forward_backward(const MicroBatch& batch, const WindowPlace& place) = 0;
  // Forward and loss only.
  virtual Result<LossSum> evaluate(const MicroBatch& batch, const TokenResults& results = {}) = 0;
  // FP32 logits [tokens, vocab] of a batch (its targets are not read).
  // hook: called after each layer with the residual stream, FP32 [tokens, hidden]; a failure ends the pass.
  virtual Status logits(const MicroBatch& batch, float* out, const LayerHook& hook = {}) = 0;
  // Ends a window whose last micro-batch was not announced; its norm then costs one pass over the gradients.
  virtual Status end_window() = 0;
  // Sum of squares over all gradients of the finished window, tied weights once, in FP64 and a fixed order.
  virtual Result<double> gradient_norm_squared() = 0;
  // "model.unreached" with the name of a parameter that got no gradient in the finished window.
  virtual Status check_reached() const = 0;

  // Room for `capacity` positions of one sequence, at most max_positions.
  virtual Result<std::unique_ptr<KeyValueCache>> new_cache(int64_t capacity) = 0;
  // Appends tokens to the cached sequence. logits: FP32 [vocab] of the last one, or null.
  virtual Status extend(KeyValueCache& cache, std::span<const int32_t> ids, float* logits) = 0;
};

}  // namespace invar
