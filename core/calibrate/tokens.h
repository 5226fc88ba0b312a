// The tokens on which two checkpoints are compared: sequences of one length out of text or token files.
// Thread rule: const after construction.
#pragma once

#include <memory>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/family/family.h"
#include "core/text/sequences.h"
#include "invar/v1/calibrate.pb.h"

namespace invar {

class CalibrationTokens {
 public:
  // config: complete. `length_given`: the sequence length is the user's, so it is kept or refused; else it shrinks to
  // what the model and the text allow.
  static Result<CalibrationTokens> read(const v1::CalibrateConfig& config, bool length_given, const ModelShape& shape,
                                        FileSystem& files, const CancelFlag* cancel);

  int64_t sequence_length() const { return sequences_->length(); }
  int64_t sequences() const { return count_; }
  // Appends sequence `index` < sequences().
  void append(int64_t index, TokenBatch* batch) const { sequences_->append_training(index, batch); }

 private:
  CalibrationTokens(std::shared_ptr<const Sequences> sequences, int64_t count)
      : sequences_(std::move(sequences)), count_(count) {}

  std::shared_ptr<const Sequences> sequences_;
  int64_t count_;
};

}  // namespace invar
