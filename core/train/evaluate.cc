#include "core/train/evaluate.h"

#include <algorithm>

namespace invar {

MicroBatch micro_batch_of(const TokenBatch& batch) {
  return {.ids = batch.ids, .targets = batch.targets, .offsets = batch.offsets, .positions = {}};
}

Result<LossSum> evaluate_sequences(Model& model, const Sequences& sequences, SequencePart part, int64_t limit,
                                   int64_t micro_batch, const CancelFlag* cancel) {
  int64_t count = part == SequencePart::kHeldout ? sequences.heldout() : sequences.training();
  if (limit > 0) count = std::min(count, limit);
  LossSum total;
  TokenBatch batch;
  for (int64_t first = 0; first < count; first += micro_batch) {
    INVAR_TRY(check_cancel(cancel));
    batch.clear();
    for (int64_t i = first; i < std::min(count, first + micro_batch); ++i) {
      if (part == SequencePart::kHeldout) {
        sequences.append_heldout(i, &batch);
      } else {
        sequences.append_training(i, &batch);
      }
    }
    INVAR_ASSIGN(const LossSum loss, model.evaluate(micro_batch_of(batch)));
    total.sum += loss.sum;
    total.count += loss.count;
  }
  return total;
}

}  // namespace invar
