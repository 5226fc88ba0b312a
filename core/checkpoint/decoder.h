// Values of tensors whose layout is more than one code and one scale an element: blocks with their own packing, code
// books, zero points, stored transposed, or with a factor folded in.
//
// Role: a rule of rules/ that reads such a layout gives TensorPlan::decoder an object of its own class; conversion,
// verification, comparison and loading all read through it, so that a format is one file.
// Invariant: decode() gives the FP32 values that the format's own reader computes before it rounds to the target, the
// same for any cut of the elements into calls. It reads what it needs from the folder and keeps at most scratch_bytes()
// in its scratch.
// Thread rule: immutable; decode() from any number of threads, each with its own scratch.
#pragma once

#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/container/checkpoint_folder.h"

namespace invar {

// Buffers that live from call to call with one thread.
struct DecoderScratch {
  std::vector<std::byte> bytes, more;  // free for any call
  // A part of a tensor that a decoder keeps for its next call, marked with its own address and a number.
  struct Kept {
    const void* owner = nullptr;
    int64_t part = -1;
    std::vector<std::byte> bytes, more;
  } kept;
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  // The most that decode() keeps in its scratch for calls of up to 131072 elements.
  virtual int64_t scratch_bytes() const { return 1 << 20; }
  // Elements [first, first + values.size()) of the result's shape.
  virtual Status decode(const CheckpointFolder& folder, int64_t first, std::span<float> values,
                        DecoderScratch& scratch) const = 0;
};

}  // namespace invar
