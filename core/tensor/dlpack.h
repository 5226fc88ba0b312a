// DLPack in and out: sharing a tensor's memory with another library in the same process.
//
//   INVAR_ASSIGN(DLManagedTensorVersioned* managed, tensor_to_dlpack(tensor));  // its user calls managed->deleter
//   INVAR_ASSIGN(Tensor tensor, tensor_from_dlpack(managed));                   // takes over on success
//
// Structures as the public specification lays them out (https://dmlc.github.io/dlpack/latest/c_api.html), so that
// no header of it is needed: ABI major version 1 with the data types of 1.1, and the unversioned form before it.
// Thread rule: as Tensor; a deleter may run on any thread.
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
  int64_t* strides;  // in elements; null (before 1.2): row-major without gaps
  uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;  // bit 0: read only; bit 1: copied; bit 2: elements below a byte are padded to one
  DLTensor dl_tensor;
};

}  // extern "C"

namespace invar {

// The DLPack type of a dtype; code 255 where there is none. E2M1 is packed.
DLDataType dlpack_type_of(DType dtype);
// kUnspecified where there is none.
DType dtype_from_dlpack(DLDataType type);

// Takes `managed` over on success: its deleter runs with the last reference. On failure it stays the caller's.
// "dlpack.version", "dlpack.device", "dlpack.dtype", "dlpack.layout", "dlpack.read_only", "tensor.shape".
Result<Tensor> tensor_from_dlpack(DLManagedTensorVersioned* managed);
Result<Tensor> tensor_from_dlpack(DLManagedTensor* managed);

// A managed tensor that shares the memory and keeps it alive. "dlpack.quantized": there is no place for scales.
Result<DLManagedTensorVersioned*> tensor_to_dlpack(const Tensor& tensor);
Result<DLManagedTensor*> tensor_to_dlpack_unversioned(const Tensor& tensor);

}  // namespace invar
