// Values of stored tensors, whatever their layout: codes decoded and scaled, other formats widened.
//
//   ValueReader reader(folder);
//   INVAR_TRY(reader.read(plan, first, count, values));        // double: exact products, whole integers up to 2^53
//
// Thread rule: one reader belongs to one thread; the folder is only read.
#pragma once

#include <span>
#include <vector>

#include "core/checkpoint/scale_window.h"

namespace invar {

class ValueReader {
 public:
  explicit ValueReader(const CheckpointFolder& folder) : folder_(folder) {}

  // Elements [first, first + out.size()). A product of an 8-bit float and an FP32 scale is exact in FP64; values of a
  // decoder are FP32 numbers.
  // checkpoint.unsupported_layout for formats that hold no numbers of their own (packed 4- and 6-bit, complex).
  Status read(const TensorPlan& plan, int64_t first, std::span<double> out);
  // The same rounded to FP32: what an FP32 product gives.
  Status read(const TensorPlan& plan, int64_t first, std::span<float> out);
  // The stored numbers of a tensor as they are.
  Status read(const TensorInfo& tensor, int64_t first, std::span<float> out);

 private:
  uint8_t code_at(const TensorPlan& plan, int64_t k) const;
  template <typename Value>
  Status read_any(const TensorPlan& plan, int64_t first, std::span<Value> out);

  const CheckpointFolder& folder_;
  ScaleWindow scales_;
  std::vector<std::byte> bytes_;
  DecoderScratch scratch_;
};

}  // namespace invar
