// Keys and values of one sequence in device memory: a matrix [capacity, 2 * kv_size] a layer.
//
// Invariant: rows below length() are filled in every layer. Thread rule: as Model.
#pragma once

#include <memory>

#include "core/device/device.h"
#include "core/model/model.h"
#include "core/nn/matrix.h"

namespace invar {

class DecoderCache : public KeyValueCache {
 public:
  static Result<std::unique_ptr<DecoderCache>> create(Device& device, const ModelShape& shape, DType dtype,
                                                      int64_t capacity);

  int64_t capacity() const override { return capacity_; }
  int64_t length() const override { return length_; }
  void truncate(int64_t length) override { length_ = length < length_ ? (length < 0 ? 0 : length) : length_; }
  void set_length(int64_t length) { length_ = length; }

  // The shape object of the model that made this cache.
  const ModelShape& shape() const { return shape_; }
  Matrix layer(int64_t index) const {
    const int64_t cols = 2 * shape_.kv_size();
    std::byte* data = memory_.as<std::byte>() + bytes_of(dtype_, index * capacity_ * cols);
    return {data, dtype_, capacity_, cols, cols};
  }

 private:
  DecoderCache(const ModelShape& shape, DType dtype, int64_t capacity)
      : shape_(shape), dtype_(dtype), capacity_(capacity) {}

  const ModelShape& shape_;
  DType dtype_;
  int64_t capacity_, length_ = 0;
  DeviceBuffer memory_;
};

}  // namespace invar
