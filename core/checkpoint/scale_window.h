// The scales that a range of a weight's elements needs, read, widened to FP32 and checked.
//
//   ScaleWindow window;
//   INVAR_TRY(window.load(folder, plan, first, count));
//   float scale = window.at(element);                 // any element of [first, first + count)
//
// A window holds only what its range needs, so that memory stays bounded whatever the tensor's size.
// Thread rule: one window belongs to one thread; the folder is only read.
#pragma once

#include <vector>

#include "core/checkpoint/layout.h"

namespace invar {

class ScaleWindow {
 public:
  // Reads the scales of elements [first, first + count), count > 0. Errors name the scale and its place:
  // checkpoint.scale_not_finite, checkpoint.scale_negative.
  Status load(const CheckpointFolder& folder, const TensorPlan& plan, int64_t first, int64_t count);

  bool unscaled() const { return term_ == nullptr; }
  bool divides() const { return term_ != nullptr && term_->divides; }
  bool has_zero() const { return has_zero_; }
  bool powers_of_two() const { return powers_of_two_; }  // every non-zero scale is one
  float smallest() const { return smallest_; }           // of the non-zero scales; 1 when unscaled
  float largest() const { return largest_; }

  // The scales from that of the first column of `matrix_row` (or of the range's first column, where the range lies in
  // one row) on; where the columns go on, so do the scales.
  const float* row(int64_t matrix_row) const {
    return values_.data() + (term_->grid.scale_row(matrix_row) + first_block_ - begin_);
  }
  int64_t first_block() const { return first_block_; }  // column block that row() starts with
  float at(int64_t element) const;
  // The scales that are loaded, and which of them, from 0, is that of `element`.
  int64_t count() const { return static_cast<int64_t>(values_.size()); }
  float value(int64_t slot) const { return values_[static_cast<size_t>(slot)]; }
  int64_t begin() const { return begin_; }  // index of slot 0 in the scale tensor
  int64_t slot_of(int64_t element) const { return term_ == nullptr ? 0 : index_of(element) - begin_; }
  // Elements from `element` on, at most `limit`, that share its scale and lie in its row.
  int64_t run(int64_t element, int64_t limit) const;
  // "[1, 2]": where the scale of `element` stands in its tensor.
  std::string place_of(int64_t element) const;
  const ScaleTerm* term() const { return term_; }

 private:
  int64_t index_of(int64_t element) const;

  const ScaleTerm* term_ = nullptr;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
  int64_t begin_ = 0;  // index of values_[0] in the tensor
  int64_t first_block_ = 0;
  bool has_zero_ = false, powers_of_two_ = true;
  float smallest_ = 1, largest_ = 1;
};

// The position of element `flat` in a tensor of this shape.
std::vector<int64_t> position_of(const std::vector<int64_t>& shape, int64_t flat);
// "[1, 2]": the position of element `flat` in a tensor of this shape; "[]" for a scalar.
std::string position_text(const std::vector<int64_t>& shape, int64_t flat);

}  // namespace invar
