// A tensor that lies in files as boxes of elements with strides: one box for a plain or a strided view, several when
// ranks or partitions each hold a part.
//
// Role: turns "bytes [offset, offset + n) in row-major order" into reads of the files, in memory that does not depend
// on the tensor's size. Invariant: the boxes tile the shape exactly, and every element of a box lies inside its file
// (StoredBoxes::make checks both). Thread rule: immutable; read() from any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/numerics/dtype.h"

namespace invar {

// Element (i0, i1, ...) of a box lies at byte `begin + (i0 * strides[0] + i1 * strides[1] + ...) * width`.
struct StoredBox {
  std::shared_ptr<const RandomAccessFile> file;
  int64_t begin = 0;             // byte in the file of the element at index 0
  std::vector<int64_t> origin;   // where the box lies in the tensor
  std::vector<int64_t> sizes;    // same rank
  std::vector<int64_t> strides;  // in elements, none negative
};

// Strides of a tensor without gaps, in elements.
std::vector<int64_t> packed_strides(const std::vector<int64_t>& sizes);

// Bytes from the box's first to behind its last element; -1 when that overflows.
int64_t extent_bytes(const StoredBox& box, int64_t width);

class StoredBoxes {
 public:
  // `width`: bytes of an element. `label` names file and tensor in messages; DATA_LOSS with `reason` when the boxes do
  // not tile `shape` or leave their files.
  static Result<StoredBoxes> make(const std::string& label, std::string_view reason, std::vector<int64_t> shape,
                                  int64_t width, std::vector<StoredBox> boxes);

  // Bytes from `offset` of the tensor in row-major order; the caller has checked the range.
  Status read(int64_t offset, std::span<std::byte> out) const;
  const std::vector<StoredBox>& boxes() const { return boxes_; }

 private:
  // A box as a list of runs: `count` runs of `length` elements that follow each other in the tensor.
  struct Runs {
    int64_t count = 0, length = 0;
    size_t outer = 0;            // leading dimensions that number the runs
    int64_t first = 0, end = 0;  // tensor elements between which all runs lie
  };
  int64_t run_begin(size_t box, int64_t run) const;  // the tensor element at which the run begins
  Status read_elements(int64_t first, int64_t count, std::byte* out) const;
  Status read_box(const StoredBox& box, int64_t first, int64_t count, std::byte* out) const;
  Status read_across(const StoredBox& box, int64_t first, int64_t count, std::byte* out) const;

  std::vector<int64_t> shape_, shape_strides_;
  int64_t width_ = 1;
  std::vector<StoredBox> boxes_;  // sorted by the first element
  std::vector<Runs> runs_;        // one for each box
};

}  // namespace invar
