#include "core/tensor/dlpack.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace invar {
namespace {

constexpr uint32_t kMajor = 1, kMinor = 1;
constexpr int32_t kCpu = 1, kCudaHost = 3;  // pinned memory is host memory
constexpr uint64_t kReadOnly = 1, kSubbytePadded = 4;

// Codes: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 7 and up the small floats (since 1.1).
struct TypePair {
  DType dtype;
  uint8_t code, bits;
};
constexpr TypePair kTypes[] = {
    {DType::kF32, 2, 32},  {DType::kF16, 2, 16},      {DType::kBF16, 4, 16},   {DType::kF64, 2, 64},
    {DType::kBool, 6, 8},  {DType::kU8, 1, 8},        {DType::kI8, 0, 8},      {DType::kU16, 1, 16},
    {DType::kI16, 0, 16},  {DType::kU32, 1, 32},      {DType::kI32, 0, 32},    {DType::kU64, 1, 64},
    {DType::kI64, 0, 64},  {DType::kC64, 5, 64},      {DType::kE4M3FN, 10, 8}, {DType::kE4M3FNUZ, 11, 8},
    {DType::kE5M2, 12, 8}, {DType::kE5M2FNUZ, 13, 8}, {DType::kE8M0, 14, 8},   {DType::kE2M3, 15, 6},
    {DType::kE3M2, 16, 6}, {DType::kE2M1, 17, 4},
};

Status refused(std::string_view reason, std::string message) {
  return Error(Code::kInvalidArgument, reason, std::move(message));
}

// What an exported tensor keeps alive.
template <typename Managed>
struct Export {
  Managed managed{};
  Tensor tensor;
  std::vector<int64_t> shape, strides;
};

template <typename Managed>
Result<Managed*> make_export(const Tensor& tensor) {
  if (tensor.quantized()) {
    return refused("dlpack.quantized", "a quantised tensor has no dlpack form: its scales would be lost");
  }
  const DLDataType type = dlpack_type_of(tensor.dtype());
  if (type.code == 255) return refused("dlpack.dtype", cat("dtype ", name_of(tensor.dtype()), " has no dlpack form"));
  const std::vector<int64_t>& shape = tensor.shape();
  // Always written: consumers of 1.2 and later may rely on them.
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= std::max<int64_t>(shape[axis], 1);
  }
  auto* kept = new Export<Managed>{{}, tensor, shape, std::move(strides)};
  DLTensor& view = kept->managed.dl_tensor;
  view.data = tensor.data();
  view.device = {kCpu, 0};
  view.ndim = static_cast<int32_t>(shape.size());
  view.dtype = type;
  view.shape = kept->shape.data();
  view.strides = kept->strides.data();
  kept->managed.manager_ctx = kept;
  kept->managed.deleter = [](Managed* self) { delete static_cast<Export<Managed>*>(self->manager_ctx); };
  return &kept->managed;
}

Status check_dense(const DLTensor& from, const std::vector<int64_t>& shape) {
  if (from.strides == nullptr) return {};
  int64_t expected = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] != 1 && from.strides[axis] != expected) {
      return refused("dlpack.layout", cat("dlpack stride ", from.strides[axis], " of dimension ", axis, ", expected ",
                                          expected, ": make it contiguous first"));
    }
    expected *= shape[axis];
  }
  return {};
}

template <typename Managed>
Result<Tensor> import(Managed* managed) {
  const DLTensor& from = managed->dl_tensor;
  if (from.device.device_type != kCpu && from.device.device_type != kCudaHost) {
    return refused("dlpack.device",
                   cat("dlpack device type ", from.device.device_type, ", only memory of the cpu (1) is supported"));
  }
  const DType dtype = dtype_from_dlpack(from.dtype);
  if (dtype == DType::kUnspecified) {
    return refused("dlpack.dtype", cat("dlpack dtype code ", int{from.dtype.code}, " with ", int{from.dtype.bits},
                                       " bits and ", from.dtype.lanes, " lanes is not supported"));
  }
  if (from.ndim < 0 || from.ndim > static_cast<int32_t>(Tensor::kMaxRank) || (from.ndim > 0 && from.shape == nullptr)) {
    return refused("dlpack.layout", cat("dlpack tensor has ", from.ndim, " dimensions, at most ", Tensor::kMaxRank,
                                        " with their sizes are supported"));
  }
  std::vector<int64_t> shape(from.shape, from.shape + from.ndim);
  INVAR_ASSIGN(const int64_t bytes, Tensor::bytes_of_shape(dtype, shape));
  if (bytes > 0) {
    INVAR_TRY(check_dense(from, shape));
    if (from.data == nullptr) return refused("dlpack.layout", "dlpack tensor has elements but no data");
  }
  char* data = from.data == nullptr ? nullptr : static_cast<char*>(from.data) + from.byte_offset;
  const uintptr_t alignment = std::max<uintptr_t>(static_cast<uintptr_t>(bits_of(dtype)) / 8, 1);
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    return refused("dlpack.layout",
                   cat("dlpack data for ", name_of(dtype), " is not aligned to ", alignment, " bytes"));
  }
  // The owner is made before it is armed: should anything fail, managed stays the caller's.
  struct Owner {
    Managed* managed = nullptr;
    ~Owner() {
      if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
    }
  };
  auto owner = std::make_shared<Owner>();
  INVAR_ASSIGN(Tensor tensor, Tensor::view(dtype, std::move(shape), std::shared_ptr<void>(owner, data)));
  owner->managed = managed;
  return tensor;
}

}  // namespace

DLDataType dlpack_type_of(DType dtype) {
  for (const TypePair& pair : kTypes) {
    if (pair.dtype == dtype) return {pair.code, pair.bits, 1};
  }
  return {255, 0, 0};
}

DType dtype_from_dlpack(DLDataType type) {
  if (type.lanes != 1) return DType::kUnspecified;
  for (const TypePair& pair : kTypes) {
    if (pair.code == type.code && pair.bits == type.bits) return pair.dtype;
  }
  return DType::kUnspecified;
}

Result<Tensor> tensor_from_dlpack(DLManagedTensorVersioned* managed) {
  if (managed == nullptr) return refused("dlpack.layout", "the dlpack tensor is null");
  if (managed->version.major != kMajor) {
    return refused("dlpack.version",
                   cat("dlpack version ", managed->version.major, ".", managed->version.minor, ", 1.x is supported"));
  }
  if ((managed->flags & kReadOnly) != 0) {
    return refused("dlpack.read_only", "dlpack tensor is read only: copy it first");
  }
  if ((managed->flags & kSubbytePadded) != 0) {
    return refused("dlpack.layout", "dlpack tensor pads elements below a byte to one: expected packed ones");
  }
  return import(managed);
}

Result<Tensor> tensor_from_dlpack(DLManagedTensor* managed) {
  if (managed == nullptr) return refused("dlpack.layout", "the dlpack tensor is null");
  return import(managed);
}

Result<DLManagedTensorVersioned*> tensor_to_dlpack(const Tensor& tensor) {
  INVAR_ASSIGN(DLManagedTensorVersioned * managed, make_export<DLManagedTensorVersioned>(tensor));
  managed->version = {kMajor, kMinor};
  return managed;
}

Result<DLManagedTensor*> tensor_to_dlpack_unversioned(const Tensor& tensor) {
  return make_export<DLManagedTensor>(tensor);
}

}  // namespace invar
