// What the opaque handles hold. A handle is a thin object around shared state, so that children keep parents alive and
// release may come in any order.
//
// Thread rule: Turn lets one call at a time work on a handle; the others fail.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "c_api/internal/status.h"
#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/thread_pool.h"
#include "core/config/config.h"
#include "core/device/device.h"
#include "core/tensor/tensor.h"

namespace invar::abi {

// Calls drop(user) once, at the end of its life.
class Dropper {
 public:
  Dropper(invar_drop_fn drop, void* user) : drop_(drop), user_(user) {}
  Dropper(const Dropper&) = delete;
  Dropper& operator=(const Dropper&) = delete;
  ~Dropper();

 private:
  invar_drop_fn drop_;
  void* user_;
};

// Everything that work of one runtime shares.
struct RuntimeState {
  pid_t process = getpid();
  int threads = 1;
  std::shared_ptr<ThreadPool> pool;
  Logger log;
  DeviceOptions device_options;
  std::unique_ptr<FileSystem> host_files;  // null: the operating system's alone
  std::mutex device_mutex;                 // a device serves one thread at a time
  std::shared_ptr<Device> device;          // of tensors, optimizers and accumulators

  // FAILED_PRECONDITION in a forked child: its threads do not exist.
  Status check_process() const;
  FileSystem& files() { return host_files != nullptr ? *host_files : posix_files(); }
  // The runtime's pool, or one of its own for a call that asks for another number of threads.
  std::shared_ptr<ThreadPool> pool_for(int64_t wanted) const;
  Result<std::shared_ptr<Device>> open_device(std::string_view name, std::shared_ptr<ThreadPool> on) const;
};

// Fails when another call is at work on the same handle.
class Turn {
 public:
  explicit Turn(std::atomic<bool>& busy) : busy_(busy), mine_(!busy.exchange(true)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (mine_) busy_.store(false);
  }
  Status status(const char* function) const;

 private:
  std::atomic<bool>& busy_;
  bool mine_;
};

// Deletes a handle, except in a forked child, where joining threads that do not exist would hang.
template <typename Handle>
void release_handle(Handle* handle) noexcept {
  if (handle == nullptr || !handle->runtime->check_process().ok()) return;
  delete handle;
}

Result<invar_bytes*> make_bytes(std::string content);

// The message behind a config argument, checked whole and with its defaults filled in.
template <typename Message>
Result<Message> config_from(const char* function, const void* config, size_t size) {
  if (config == nullptr && size > 0) return null_argument(function, "config");
  INVAR_ASSIGN(
      const auto given,
      (config::parse<Message>(std::string_view(static_cast<const char*>(config == nullptr ? "" : config), size))));
  INVAR_TRY(config::check(given));
  return config::with_defaults(given);
}

}  // namespace invar::abi

struct invar_bytes {
  std::string content;
};

struct invar_runtime {
  std::shared_ptr<invar::abi::RuntimeState> runtime;
};

struct invar_cancel {
  std::shared_ptr<invar::abi::RuntimeState> runtime;
  std::shared_ptr<invar::CancelFlag> flag;
};

struct invar_tensor {
  std::shared_ptr<invar::abi::RuntimeState> runtime;
  invar::Tensor tensor;
};

// Inside a body: the handle is there, its process is alive.
#define INVAR_HANDLE(handle) \
  INVAR_REQUIRE(handle);     \
  INVAR_TRY((handle)->runtime->check_process())

// The same, and this call's turn until the end of the body.
#define INVAR_TURN(handle)                       \
  INVAR_HANDLE(handle);                          \
  const ::invar::abi::Turn turn((handle)->busy); \
  INVAR_TRY(turn.status(function))

// A text argument: NULL only with size 0.
#define INVAR_TEXT(view, pointer, size)                                                           \
  if ((pointer) == nullptr && (size) > 0) return ::invar::abi::null_argument(function, #pointer); \
  const std::string_view view((pointer) == nullptr ? "" : (pointer), (size))
