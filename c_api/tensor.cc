// Tensors: thin handles over core/tensor and core/device/tensor_operations.
#include <cstddef>
#include <cstring>

#include "c_api/internal/callbacks.h"
#include "core/device/tensor_operations.h"
#include "core/tensor/dlpack.h"

namespace {

using invar::Code;
using invar::Device;
using invar::DType;
using invar::Error;
using invar::Result;
using invar::Tensor;
using invar::abi::entry;
using invar::abi::Outcome;
using invar::abi::RuntimeState;

Result<std::vector<int64_t>> shape_from(const char* function, const int64_t* shape, int32_t rank) {
  if (rank < 0 || rank > INVAR_MAX_RANK) {
    return Error(Code::kInvalidArgument, "tensor.shape",
                 invar::cat(function, ": rank ", rank, " is not in 0..", INVAR_MAX_RANK));
  }
  if (shape == nullptr && rank > 0) return invar::abi::null_argument(function, "shape");
  return std::vector<int64_t>(shape, shape + rank);
}

// Runs work(device) -> Result<Tensor> in the runtime's turn on its device.
template <typename Work>
invar_status* make_result(const char* name, const invar_tensor* tensor, invar_tensor** result, Work&& work) noexcept {
  return entry(name, [&](const char* function) -> Outcome {
    if (result != nullptr) *result = nullptr;
    INVAR_HANDLE(tensor);
    INVAR_REQUIRE(result);
    RuntimeState& runtime = *tensor->runtime;
    const std::lock_guard<std::mutex> lock(runtime.device_mutex);
    INVAR_ASSIGN(Tensor made, work(*runtime.device));
    *result = new invar_tensor{tensor->runtime, std::move(made)};
    return {};
  });
}

}  // namespace

invar_status* invar_tensor_create(invar_runtime* runtime, invar_dtype dtype, const int64_t* shape, int32_t rank,
                                  invar_tensor** tensor) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (tensor != nullptr) *tensor = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_REQUIRE(tensor);
    INVAR_ASSIGN(auto sizes, shape_from(function, shape, rank));
    RuntimeState& state = *runtime->runtime;
    const std::lock_guard<std::mutex> lock(state.device_mutex);
    INVAR_ASSIGN(Tensor made, invar::make_tensor(*state.device, static_cast<DType>(dtype), std::move(sizes)));
    *tensor = new invar_tensor{runtime->runtime, std::move(made)};
    return {};
  });
}

invar_status* invar_tensor_view(invar_runtime* runtime, invar_dtype dtype, const int64_t* shape, int32_t rank,
                                void* data, size_t data_size, void* user, invar_drop_fn drop,
                                invar_tensor** tensor) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    const auto dropper = std::make_shared<invar::abi::Dropper>(drop, user);
    if (tensor != nullptr) *tensor = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_REQUIRE(tensor);
    INVAR_ASSIGN(auto sizes, shape_from(function, shape, rank));
    INVAR_ASSIGN(const int64_t needed, Tensor::bytes_of_shape(static_cast<DType>(dtype), sizes));
    if (data == nullptr && needed > 0) return invar::abi::null_argument(function, "data");
    if (static_cast<uint64_t>(needed) > data_size) {
      return Error(Code::kInvalidArgument, "tensor.data_size",
                   invar::cat(function, ": data_size ", data_size, " is not >= ", needed, ", what the shape needs"));
    }
    INVAR_ASSIGN(Tensor made,
                 Tensor::view(static_cast<DType>(dtype), std::move(sizes), std::shared_ptr<void>(dropper, data)));
    *tensor = new invar_tensor{runtime->runtime, std::move(made)};
    return {};
  });
}

invar_status* invar_tensor_from_dlpack(invar_runtime* runtime, struct DLManagedTensorVersioned* managed,
                                       invar_tensor** tensor) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (tensor != nullptr) *tensor = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_REQUIRE(managed);
    INVAR_REQUIRE(tensor);
    INVAR_ASSIGN(Tensor made, invar::tensor_from_dlpack(managed));
    *tensor = new invar_tensor{runtime->runtime, std::move(made)};
    return {};
  });
}

invar_status* invar_tensor_to_dlpack(invar_tensor* tensor, struct DLManagedTensorVersioned** managed) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (managed != nullptr) *managed = nullptr;
    INVAR_HANDLE(tensor);
    INVAR_REQUIRE(managed);
    INVAR_ASSIGN(*managed, invar::tensor_to_dlpack(tensor->tensor));
    return {};
  });
}

invar_status* invar_tensor_describe(const invar_tensor* tensor, invar_tensor_info* info) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_HANDLE(tensor);
    INVAR_REQUIRE(info);
    INVAR_TRY(invar::abi::check_struct(function, info, offsetof(invar_tensor_info, scale_inv) + sizeof(float*)));
    const Tensor& from = tensor->tensor;
    invar_tensor_info filled = INVAR_TENSOR_INFO_INIT;
    filled.dtype = static_cast<invar_dtype>(from.dtype());
    filled.rank = static_cast<int32_t>(from.shape().size());
    filled.quantized = from.quantized();
    for (size_t i = 0; i < from.shape().size(); ++i) filled.shape[i] = from.shape()[i];
    filled.elements = from.elements();
    filled.bytes = static_cast<size_t>(from.bytes());
    filled.block_rows = from.scales().block_rows;
    filled.block_cols = from.scales().block_cols;
    filled.scale_rows = from.scales().rows;
    filled.scale_cols = from.scales().cols;
    filled.scale_inv = from.scales().scale_inv.get();
    invar::abi::fill_struct(filled, info);
    return {};
  });
}

invar_status* invar_tensor_data(invar_tensor* tensor, void** data) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (data != nullptr) *data = nullptr;
    INVAR_HANDLE(tensor);
    INVAR_REQUIRE(data);
    *data = tensor->tensor.data();
    return {};
  });
}

invar_status* invar_tensor_read(const invar_tensor* tensor, void* destination, size_t capacity,
                                size_t* needed) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_HANDLE(tensor);
    const auto bytes = static_cast<size_t>(tensor->tensor.bytes());
    if (destination != nullptr && capacity < bytes) {
      return Error(Code::kOutOfRange, "argument.capacity",
                   invar::cat(function, ": capacity ", capacity, " is not >= ", bytes, ", the tensor's bytes"));
    }
    if (destination == nullptr && needed == nullptr) return invar::abi::null_argument(function, "destination");
    if (destination != nullptr && bytes > 0) std::memcpy(destination, tensor->tensor.data(), bytes);
    if (needed != nullptr) *needed = bytes;
    return {};
  });
}

invar_status* invar_tensor_cast(const invar_tensor* tensor, invar_dtype dtype, invar_tensor** result) noexcept {
  return make_result(__func__, tensor, result, [&](Device& device) {
    return invar::cast_tensor(device, tensor->tensor, static_cast<DType>(dtype));
  });
}

invar_status* invar_tensor_quantize(const invar_tensor* tensor, const invar_quantize_options* options,
                                    invar_tensor** result) noexcept {
  return make_result(__func__, tensor, result, [&](Device& device) -> Result<Tensor> {
    invar_quantize_options given = INVAR_QUANTIZE_OPTIONS_INIT;
    if (options != nullptr) {
      INVAR_TRY(invar::abi::copy_struct("invar_tensor_quantize", options,
                                        offsetof(invar_quantize_options, block_cols) + sizeof(int64_t), &given));
    }
    return invar::quantize_tensor(device, tensor->tensor,
                                  {.format = static_cast<DType>(given.dtype),
                                   .granularity = given.granularity,
                                   .power_of_two = given.power_of_two != 0,
                                   .block_rows = given.block_rows,
                                   .block_cols = given.block_cols});
  });
}

invar_status* invar_tensor_dequantize(const invar_tensor* tensor, invar_dtype dtype, invar_tensor** result) noexcept {
  return make_result(__func__, tensor, result, [&](Device& device) {
    return invar::dequantize_tensor(device, tensor->tensor, static_cast<DType>(dtype));
  });
}

invar_status* invar_tensor_matmul(const invar_tensor* a, bool transpose_a, const invar_tensor* b, bool transpose_b,
                                  invar_dtype dtype, invar_tensor** result) noexcept {
  return make_result(__func__, a, result, [&](Device& device) -> Result<Tensor> {
    if (b == nullptr) return invar::abi::null_argument("invar_tensor_matmul", "b");
    return invar::matmul_tensors(device, a->tensor, transpose_a, b->tensor, transpose_b, static_cast<DType>(dtype));
  });
}

void invar_tensor_release(invar_tensor* tensor) noexcept { invar::abi::release_handle(tensor); }
