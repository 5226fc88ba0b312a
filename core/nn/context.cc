#include "core/nn/context.h"

namespace invar {

const char* slot_name(Slot slot) {
  switch (slot) {
    case Slot::kInput: return "input";
    case Slot::kAttentionNorm: return "attention_norm";
    case Slot::kAttentionInvRms: return "attention_inv_rms";
    case Slot::kQkv: return "qkv";
    case Slot::kQueryKey: return "query_key";
    case Slot::kHeadInvRms: return "head_inv_rms";
    case Slot::kAttentionBranch: return "attention_branch";
    case Slot::kAttentionBranchInvRms: return "attention_branch_inv_rms";
    case Slot::kMlpBranch: return "mlp_branch";
    case Slot::kMlpBranchInvRms: return "mlp_branch_inv_rms";
    case Slot::kAttention: return "attention";
    case Slot::kLogSumExp: return "log_sum_exp";
    case Slot::kMiddle: return "middle";
    case Slot::kMlpNorm: return "mlp_norm";
    case Slot::kMlpInvRms: return "mlp_inv_rms";
    case Slot::kGateUp: return "gate_up";
    case Slot::kCount: break;
  }
  return "?";
}

// One more layer than there are: the input of "layer L" is the residual stream before the final norm.
Context::Context(Device& device, Arena& arena, ParameterAccess& parameters, int64_t layers)
    : device_(device), arena_(arena), parameters_(parameters), saved_(index(layers + 1, Slot::kInput)) {}

void Context::begin(const Rows& rows, DType activations) {
  for (Scratch& scratch : saved_) scratch.block.release();
  rows_ = rows;
  activations_ = activations;
}

Result<Scratch> Context::scratch(const char* name, DType dtype, int64_t rows, int64_t cols) {
  Scratch scratch;
  INVAR_ASSIGN(scratch.block, arena_.acquire(name, bytes_of(dtype, rows * cols)));
  scratch.matrix = {scratch.block.data(), dtype, rows, cols, cols};
  return scratch;
}

Result<Matrix> Context::save(int64_t layer, Slot slot, DType dtype, int64_t rows, int64_t cols) {
  INVAR_ASSIGN(at(layer, slot), scratch(slot_name(slot), dtype, rows, cols));
  return at(layer, slot).matrix;
}

void Context::drop_all_but_input(int64_t layer) {
  for (int slot = 0; slot < static_cast<int>(Slot::kCount); ++slot) {
    if (static_cast<Slot>(slot) != Slot::kInput) drop(layer, static_cast<Slot>(slot));
  }
}

}  // namespace invar
