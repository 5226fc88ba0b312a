#include "core/text/batch_source.h"

#include <numeric>
#include <utility>

#include "core/base/rng.h"

namespace invar {

BatchSource::BatchSource(std::shared_ptr<const Sequences> sequences, const OrderOptions& options)
    : sequences_(std::move(sequences)), options_(options) {}

Result<BatchSource> BatchSource::with_order(std::shared_ptr<const Sequences> sequences, std::vector<int64_t> starts) {
  for (size_t i = 0; i < starts.size(); ++i) {
    if (starts[i] < 0 || starts[i] + sequences->length() >= sequences->tokens()) {
      return Error(Code::kInvalidArgument, "text.bad_order",
                   cat("entry ", i, " starts at token ", starts[i], "; with sequences of ", sequences->length(),
                       " the last start in ", sequences->tokens(), " tokens is ",
                       sequences->tokens() - sequences->length() - 1));
    }
  }
  BatchSource source(std::move(sequences), {.shuffle = false});
  source.fixed_order_ = true;
  source.order_ = std::move(starts);
  return source;
}

int64_t BatchSource::epoch_length() const {
  return fixed_order_ ? static_cast<int64_t>(order_.size()) : sequences_->training();
}

void BatchSource::make_order() {
  if (fixed_order_ || !options_.shuffle || order_epoch_ == position_.epoch) return;
  order_.resize(static_cast<size_t>(sequences_->training()));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  Rng rng(options_.seed, static_cast<uint64_t>(position_.epoch));
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng.next_below(i)]);
  order_epoch_ = position_.epoch;
}

Status BatchSource::next(int64_t count, TokenBatch* batch) {
  batch->clear();
  if (fixed_order_ && position_.index + count > epoch_length()) {
    return Error(Code::kOutOfRange, "text.order_exhausted",
                 cat("the given order has ", epoch_length(), " sequences, ", position_.index, " are used, ", count,
                     " more were asked for"));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!fixed_order_ && position_.index == epoch_length()) position_ = {position_.epoch + 1, 0};
    make_order();
    const int64_t index = position_.index++;
    if (fixed_order_) {
      sequences_->append_at(order_[static_cast<size_t>(index)], batch);
    } else {
      sequences_->append_training(options_.shuffle ? order_[static_cast<size_t>(index)] : index, batch);
    }
  }
  return {};
}

Status BatchSource::seek(const DataPosition& position) {
  if (position.epoch < 0 || position.index < 0 || position.index > epoch_length() ||
      (fixed_order_ && position.epoch > 0)) {
    return Error(Code::kFailedPrecondition, "text.bad_position",
                 cat("data position is sequence ", position.index, " of epoch ", position.epoch, ", but an epoch has ",
                     epoch_length(), " sequences: the data is not what the checkpoint was trained on"));
  }
  position_ = position;
  return {};
}

}  // namespace invar
