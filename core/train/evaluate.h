// Mean token loss of a model over sequences. The result does not depend on the micro-batch size beyond FP32 rounding
// inside a batch: sums over sequences are FP64 in their order.
#pragma once

#include <cstdint>

#include "core/base/cancel.h"
#include "core/base/status.h"
#include "core/model/model.h"
#include "core/text/sequences.h"

namespace invar {

// A batch as a model takes it.
MicroBatch micro_batch_of(const TokenBatch& batch);

enum class SequencePart { kTraining, kHeldout };

// Sequences [0, limit) of the part (limit 0: all), `micro_batch` at a time.
Result<LossSum> evaluate_sequences(Model& model, const Sequences& sequences, SequencePart part, int64_t limit,
                                   int64_t micro_batch, const CancelFlag* cancel);

}  // namespace invar
