// DLPack 1.x, the memory layout by which array libraries hand tensors to each other (dmlc/dlpack, dlpack.h).
// The structs are declared here by the published layout, so that no header of it is needed.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/tensor/tensor.h"

extern "C" {

struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};

struct DLDevice {
  int32_t device_type;  // 1: CPU
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major without gaps
  uint64_t byte_offset;
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;  // bit 0: read only
  DLTensor dl_tensor;
};
}

namespace invar {

// Takes `managed` over on success: its deleter runs with the last reference. On failure it stays the caller's.
// "dlpack.version", "dlpack.device", "dlpack.dtype", "dlpack.layout", "dlpack.read_only".
Result<Tensor> tensor_from_dlpack(DLManagedTensorVersioned* managed);

// A managed tensor that shares the memory. "dlpack.quantized", "dlpack.dtype".
Result<DLManagedTensorVersioned*> tensor_to_dlpack(const Tensor& tensor);

}  // namespace invar
