#include "core/tensor/dlpack.h"

namespace invar {

namespace {

constexpr uint32_t kMajor = 1, kMinor = 1;
constexpr int32_t kCpu = 1;
constexpr uint64_t kReadOnly = 1;

struct Pair {
  DType dtype;
  uint8_t code, bits;
};
// DLDataTypeCode: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 7 and up the 8-bit floats (since 1.1).
constexpr Pair kPairs[] = {
    {DType::kF32, 2, 32},  {DType::kF16, 2, 16},      {DType::kBF16, 4, 16},   {DType::kF64, 2, 64},
    {DType::kBool, 6, 8},  {DType::kU8, 1, 8},        {DType::kI8, 0, 8},      {DType::kU16, 1, 16},
    {DType::kI16, 0, 16},  {DType::kU32, 1, 32},      {DType::kI32, 0, 32},    {DType::kU64, 1, 64},
    {DType::kI64, 0, 64},  {DType::kC64, 5, 64},      {DType::kE4M3FN, 10, 8}, {DType::kE4M3FNUZ, 11, 8},
    {DType::kE5M2, 12, 8}, {DType::kE5M2FNUZ, 13, 8}, {DType::kE8M0, 14, 8},
};

struct Context {
  DLManagedTensorVersioned managed;
  Tensor tensor;
  std::vector<int64_t> shape;
};

}  // namespace

Result<Tensor> tensor_from_dlpack(DLManagedTensorVersioned* managed) {
  if (managed->version.major != kMajor) {
    return Error(Code::kInvalidArgument, "dlpack.version",
                 cat("dlpack version ", managed->version.major, ".", managed->version.minor, ", 1.x is supported"));
  }
  const DLTensor& from = managed->dl_tensor;
  if (from.device.device_type != kCpu) {
    return Error(Code::kInvalidArgument, "dlpack.device",
                 cat("dlpack device type ", from.device.device_type, ", only memory of the cpu (1) is supported"));
  }
  if ((managed->flags & kReadOnly) != 0) {
    return Error(Code::kInvalidArgument, "dlpack.read_only", "dlpack tensor is read only: copy it first");
  }
  DType dtype = DType::kUnspecified;
  for (const Pair& pair : kPairs) {
    if (pair.code == from.dtype.code && pair.bits == from.dtype.bits && from.dtype.lanes == 1) dtype = pair.dtype;
  }
  if (dtype == DType::kUnspecified) {
    return Error(Code::kInvalidArgument, "dlpack.dtype",
                 cat("dlpack dtype code ", int{from.dtype.code}, " with ", int{from.dtype.bits}, " bits and ",
                     from.dtype.lanes, " lanes is not supported"));
  }
  if (from.ndim < 0 || from.ndim > static_cast<int32_t>(Tensor::kMaxRank) || (from.ndim > 0 && from.shape == nullptr)) {
    return Error(Code::kInvalidArgument, "dlpack.layout", cat("dlpack tensor has ", from.ndim, " dimensions"));
  }
  std::vector<int64_t> shape(from.shape, from.shape + from.ndim);
  INVAR_ASSIGN(const int64_t bytes, Tensor::bytes_of_shape(dtype, shape));
  int64_t stride = 1;
  for (int32_t i = from.ndim - 1; i >= 0 && from.strides != nullptr && bytes > 0; --i) {
    if (shape[static_cast<size_t>(i)] != 1 && from.strides[i] != stride) {
      return Error(Code::kInvalidArgument, "dlpack.layout",
                   cat("dlpack stride ", from.strides[i], " of dimension ", i, ", expected ", stride,
                       ": make it contiguous first"));
    }
    stride *= shape[static_cast<size_t>(i)];
  }
  if (from.data == nullptr && bytes > 0) {
    return Error(Code::kInvalidArgument, "dlpack.layout", "dlpack tensor has elements but no data");
  }
  char* data = static_cast<char*>(from.data) + (from.data == nullptr ? 0 : from.byte_offset);
  // The deleter is attached last: nothing after it can fail.
  INVAR_ASSIGN(Tensor probe, Tensor::view(dtype, shape, nullptr));
  (void)probe;
  return Tensor::view(dtype, std::move(shape), std::shared_ptr<void>(data, [managed](void*) {
                        if (managed->deleter != nullptr) managed->deleter(managed);
                      }));
}

Result<DLManagedTensorVersioned*> tensor_to_dlpack(const Tensor& tensor) {
  if (tensor.quantized()) {
    return Error(Code::kInvalidArgument, "dlpack.quantized",
                 "a quantised tensor has no dlpack form: its scales would be lost");
  }
  const Pair* found = nullptr;
  for (const Pair& pair : kPairs) {
    if (pair.dtype == tensor.dtype()) found = &pair;
  }
  if (found == nullptr) {
    return Error(Code::kInvalidArgument, "dlpack.dtype", cat("dtype ", name_of(tensor.dtype()), " has no dlpack form"));
  }
  auto* context = new Context{{}, tensor, tensor.shape()};
  DLManagedTensorVersioned& managed = context->managed;
  managed.version = {kMajor, kMinor};
  managed.manager_ctx = context;
  managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Context*>(self->manager_ctx); };
  managed.dl_tensor.data = tensor.data();
  managed.dl_tensor.device = {kCpu, 0};
  managed.dl_tensor.ndim = static_cast<int32_t>(context->shape.size());
  managed.dl_tensor.dtype = {found->code, found->bits, 1};
  managed.dl_tensor.shape = context->shape.data();
  return &managed;
}

}  // namespace invar
