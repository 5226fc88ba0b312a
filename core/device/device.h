// A device opened for use: the backend's table, its context and the pool that runs it.
//
//   INVAR_ASSIGN(auto device, Device::open("cpu", pool));
//   INVAR_TRY(device->matmul(args));
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"
#include "core/device/backend_abi.h"
#include "core/numerics/dtype.h"

namespace invar {

// Where a device's host memory comes from. allocate returns NULL when there is none; release gets the
// bytes that were asked for. Both may be called from any thread.
struct DeviceAllocator {
  void* user = nullptr;
  void* (*allocate)(void* user, size_t bytes, size_t alignment) = nullptr;
  void (*release)(void* user, void* memory, size_t bytes) = nullptr;
};

struct DeviceOptions {
  Logger log;
  DeviceAllocator allocator;         // empty: the process's own, with huge pages for large blocks
  std::string cpu_level_cap;         // "" or the highest instruction set to use, see backend_abi.h
  std::shared_ptr<void> keep_alive;  // released after the device: what the allocator needs
};

// Owned device memory; keeps its device alive.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  friend class Device;
  std::shared_ptr<class Device> device_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  // name: "cpu"; an unknown name lists those that exist. NOT_FOUND, INVALID_ARGUMENT or RESOURCE_EXHAUSTED.
  static Result<std::shared_ptr<Device>> open(std::string_view name, std::shared_ptr<ThreadPool> pool);
  static Result<std::shared_ptr<Device>> open(std::string_view name, std::shared_ptr<ThreadPool> pool,
                                              DeviceOptions options);
  // One device of a backend that is not in the list: a table of a test's or a host's own.
  static Result<std::shared_ptr<Device>> open(const invar_backend& backend, int32_t index,
                                              std::shared_ptr<ThreadPool> pool, DeviceOptions options = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  const invar_backend& table() const { return *table_; }
  invar_device_context* context() const { return context_; }
  ThreadPool& pool() const { return *pool_; }

  // 64-byte aligned; RESOURCE_EXHAUSTED with the size when there is none.
  Result<DeviceBuffer> allocate(size_t bytes);

  // The table's operations; a failure names the operation, its sizes and what was wrong.
  // args.struct_size need not be set.
  Status cast(void* to, DType to_dtype, const void* from, DType from_dtype, int64_t count);
  Status add(void* out, const void* a, const void* b, DType dtype, int64_t count);
  Status zero(void* memory, size_t bytes);
  Status copy(void* to, const void* from, size_t bytes);
  Result<double> sum_squares(const float* x, int64_t count);
  Result<bool> all_finite(const float* x, int64_t count);
  Status soft_cap(float* x, int64_t count, float cap);
  size_t matmul_packed_bytes(DType dtype, int64_t inner, int64_t cols, bool transpose_b) const;
  bool matmul_gains_from_packing(DType dtype, bool transpose_b) const;
  Status matmul_pack(void* packed, const void* b, DType dtype, int64_t inner, int64_t cols, int64_t ldb,
                     bool transpose_b);
  Status matmul(const invar_matmul_args& args);
  Status rmsnorm(const invar_rmsnorm_args& args);
  Status rmsnorm_backward(const invar_rmsnorm_backward_args& args);
  Status rope(const invar_rope_args& args);
  Status attention(const invar_attention_args& args);
  Status attention_backward(const invar_attention_backward_args& args);
  Status swiglu(const invar_swiglu_args& args);
  Status swiglu_backward(const invar_swiglu_backward_args& args);
  Status embedding(const invar_embedding_args& args);
  Status embedding_backward(const invar_embedding_args& args);
  Status head_loss(const invar_head_loss_args& args);
  Status adamw(const invar_adamw_args& args);
  Status quantize(const invar_quantize_args& args);

 private:
  friend class DeviceBuffer;
  Device() = default;
  Status report(int32_t code, std::string_view operation);

  std::string name_;
  const invar_backend* table_ = nullptr;
  invar_device_context* context_ = nullptr;
  std::shared_ptr<ThreadPool> pool_;
  DeviceOptions options_;
  std::string detail_;  // why the last operation failed, told by the backend through the host's log
  invar_backend_host host_{};
};

// Names that open() accepts on this machine, "cpu" first.
std::vector<std::string> device_names();
// One line for people about `name`.
Result<std::string> describe_device(std::string_view name);

}  // namespace invar
