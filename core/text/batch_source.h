// The order in which training visits its sequences, with a position that can be saved.
//
//   BatchSource source(sequences, {.shuffle = true, .seed = 1});
//   source.next(8, &batch);                  // 8 sequences; an epoch's end may lie inside
//   const DataPosition saved = source.position();
//   ... later, in another process: source.seek(saved) ...   // continues with the same sequences
//
// Invariant: the order of epoch e depends on (seed, e, number of sequences) only.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/status.h"
#include "core/text/sequences.h"

namespace invar {

struct DataPosition {
  int64_t epoch = 0;
  int64_t index = 0;  // sequences of this epoch already given
  bool operator==(const DataPosition&) const = default;
};

struct OrderOptions {
  bool shuffle = true;  // a new random order every epoch
  uint64_t seed = 0;
};

class BatchSource {
 public:
  BatchSource(std::shared_ptr<const Sequences> sequences, const OrderOptions& options);
  // Visits the sequences that start at the given tokens, in the given order, once; then "text.order_exhausted".
  static Result<BatchSource> with_order(std::shared_ptr<const Sequences> sequences, std::vector<int64_t> starts);

  // Replaces `batch` by the next `count` sequences.
  Status next(int64_t count, TokenBatch* batch);
  const DataPosition& position() const { return position_; }
  // "text.bad_position" when it does not lie in this data.
  Status seek(const DataPosition& position);

 private:
  void make_order();
  int64_t epoch_length() const;

  std::shared_ptr<const Sequences> sequences_;
  OrderOptions options_;
  bool fixed_order_ = false;
  DataPosition position_;
  std::vector<int64_t> order_;  // of the current epoch; empty when it is 0, 1, 2, ...
  int64_t order_epoch_ = -1;
};

}  // namespace invar
