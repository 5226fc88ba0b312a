// What a layer works with: device operations, memory, parameters and saved tensors.
//
//   INVAR_ASSIGN(Matrix y, ctx.save(layer, Slot::kAttentionNorm, ctx.activations(), tokens, hidden));
//   INVAR_TRY(ctx.run<&Device::rmsnorm>("norm.forward", args));
//   ... in the backward pass ...
//   const Matrix y = ctx.saved(layer, Slot::kAttentionNorm);
//   ctx.drop(layer, Slot::kAttentionNorm);   // after its last use: its bytes are reused
//
// While the arena plans, run() does nothing and no layer may touch memory by itself.
// Invariant: a slot is saved once and dropped once in a pass. Thread rule: one thread at a time.
#pragma once

#include <vector>

#include "core/base/cancel.h"
#include "core/device/device.h"
#include "core/memory/arena.h"
#include "core/nn/matrix.h"
#include "core/nn/operation_profile.h"
#include "core/nn/parameter_access.h"

namespace invar {

// Saved tensors of a decoder layer.
enum class Slot : int {
  kInput,            // residual stream before the layer, FP32
  kAttentionNorm,    // normalised input of query, key, value
  kAttentionInvRms,  // FP32 [tokens]
  kQkv,              // rotated queries, keys, and values; with head norms neither normalised nor rotated
  kQueryKey,         // with head norms: normalised, rotated queries and keys
  kHeadInvRms,       // FP32 [tokens, heads + kv_heads]: all queries', then all keys'
  kAttention,        // output of the attention core
  kLogSumExp,        // FP32 [heads, tokens]
  kAttentionBranch,  // output of attention before its branch norm
  kAttentionBranchInvRms,
  kMiddle,     // residual stream between attention and MLP, FP32
  kMlpNorm,    // normalised input of gate, up
  kMlpInvRms,  // FP32 [tokens]
  kGateUp,     // [tokens, 2 * intermediate]
  kMlpBranch,  // output of the MLP before its branch norm
  kMlpBranchInvRms,
  kCount,
};
const char* slot_name(Slot slot);

// The rows that pass through the model together, in device memory.
struct Rows {
  int64_t tokens = 0;
  int64_t sequences = 0;
  const int32_t* offsets = nullptr;    // [sequences + 1]
  const int32_t* positions = nullptr;  // [tokens]
};

struct RopeTable {
  const float* cos = nullptr;  // [positions, head_dim / 2]
  const float* sin = nullptr;
};

// Scratch memory with its view.
struct Scratch {
  ArenaBlock block;
  Matrix matrix;
};

class Context {
 public:
  Context(Device& device, Arena& arena, ParameterAccess& parameters, int64_t layers);

  // Runs a device operation, or nothing while planning. `name` is where the profile counts its time.
  template <auto operation, typename Args>
  Status run(const char* name, const Args& args) {
    if (planning()) return {};
    const OperationProfile::Timer timer(profile_, name);
    return (device_.*operation)(args);
  }
  // Null: no times are taken.
  void profile_into(OperationProfile* profile) { profile_ = profile; }
  Device& device() { return device_; }
  bool planning() const { return arena_.planning(); }

  void begin(const Rows& rows, DType activations);  // forgets whatever an abandoned pass left
  const Rows& rows() const { return rows_; }
  DType activations() const { return activations_; }

  ParameterAccess& parameters() { return parameters_; }
  Result<WeightView> weight(WeightId id, WeightUse use) { return parameters_.weight(id, use); }

  // As many ones as a pass has rows at most, in the activation dtype: what biases are summed with.
  void use_ones(void* ones) { ones_ = ones; }
  Matrix ones(int64_t count) const { return {ones_, activations_, 1, count, count}; }

  Result<Scratch> scratch(const char* name, DType dtype, int64_t rows, int64_t cols);
  Result<Matrix> save(int64_t layer, Slot slot, DType dtype, int64_t rows, int64_t cols);
  const Matrix& saved(int64_t layer, Slot slot) const { return at(layer, slot).matrix; }
  bool has(int64_t layer, Slot slot) const { return !at(layer, slot).block.empty(); }
  void drop(int64_t layer, Slot slot) { at(layer, slot).block.release(); }
  // Everything of the layer but its input.
  void drop_all_but_input(int64_t layer);

 private:
  Scratch& at(int64_t layer, Slot slot) { return saved_[index(layer, slot)]; }
  const Scratch& at(int64_t layer, Slot slot) const { return saved_[index(layer, slot)]; }
  static size_t index(int64_t layer, Slot slot) {
    return static_cast<size_t>(layer) * static_cast<size_t>(Slot::kCount) + static_cast<size_t>(slot);
  }

  Device& device_;
  Arena& arena_;
  ParameterAccess& parameters_;
  std::vector<Scratch> saved_;
  OperationProfile* profile_ = nullptr;
  void* ones_ = nullptr;
  Rows rows_;
  DType activations_ = DType::kF32;
};

}  // namespace invar
