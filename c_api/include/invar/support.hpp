// What invar.hpp is made of: errors, views, owned handles, and the C functions that stand for a host's. Include
// invar.hpp.
#ifndef INVAR_SUPPORT_HPP_
#define INVAR_SUPPORT_HPP_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "invar/invar.h"

namespace invar {

// What the library refused or could not do.
class Error : public std::runtime_error {
 public:
  Error(invar_code code, std::string reason, const std::string& message, int32_t callback_value = 0)
      : std::runtime_error(message), code_(code), callback_value_(callback_value), reason_(std::move(reason)) {}
  // INVAR_INVALID_ARGUMENT, ...
  invar_code code() const noexcept { return code_; }
  // For programs: "config.unknown_field".
  const std::string& reason() const noexcept { return reason_; }
  // For people; what() is the same.
  std::string message() const { return what(); }
  // What a progress function returned to stop the work; 0 otherwise.
  int32_t callback_value() const noexcept { return callback_value_; }

 private:
  invar_code code_;
  int32_t callback_value_;
  std::string reason_;
};

// Elements of the caller, borrowed during a call.
template <typename T>
class View {
 public:
  constexpr View() noexcept = default;
  constexpr View(T* data, size_t size) noexcept : data_(data), size_(size) {}
  constexpr View(std::initializer_list<std::remove_const_t<T>> list) noexcept
      : data_(list.begin()), size_(list.size()) {}
  template <typename Container, typename = std::enable_if_t<std::is_convertible_v<
                                    std::remove_pointer_t<decltype(std::declval<Container&>().data())> (*)[], T (*)[]>>>
  constexpr View(Container&& from) noexcept : data_(from.data()), size_(from.size()) {}
  constexpr T* data() const noexcept { return data_; }
  constexpr size_t size() const noexcept { return size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// Writable bytes of the caller.
class Memory {
 public:
  constexpr Memory(void* data, size_t bytes) noexcept : data_(data), bytes_(bytes) {}
  template <typename Container, typename Element = std::remove_pointer_t<decltype(std::declval<Container&>().data())>,
            typename = std::enable_if_t<!std::is_const_v<Element> && std::is_trivially_copyable_v<Element>>>
  constexpr Memory(Container&& from) noexcept : data_(from.data()), bytes_(from.size() * sizeof(Element)) {}
  constexpr void* data() const noexcept { return data_; }
  constexpr size_t bytes() const noexcept { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
};

// Returns 0 to go on; another number stops the work, and comes back as Error::callback_value.
using ProgressFunction = std::function<int32_t(const invar_progress& event)>;
// Returns 0 to go on; another number ends the text.
using TokenFunction = std::function<int32_t(const invar_token& token)>;

namespace detail {

struct Release {
  void operator()(invar_status* p) const noexcept { invar_status_release(p); }
  void operator()(invar_bytes* p) const noexcept { invar_bytes_release(p); }
  void operator()(invar_runtime* p) const noexcept { invar_runtime_release(p); }
  void operator()(invar_cancel* p) const noexcept { invar_cancel_release(p); }
  void operator()(invar_checkpoint* p) const noexcept { invar_checkpoint_release(p); }
  void operator()(invar_model* p) const noexcept { invar_model_release(p); }
  void operator()(invar_session* p) const noexcept { invar_session_release(p); }
  void operator()(invar_tensor* p) const noexcept { invar_tensor_release(p); }
  void operator()(invar_optimizer* p) const noexcept { invar_optimizer_release(p); }
  void operator()(invar_accumulator* p) const noexcept { invar_accumulator_release(p); }
  void operator()(invar_tokenizer* p) const noexcept { invar_tokenizer_release(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Release>;

// Throws what a status says, and takes it.
inline void check(invar_status* status) {
  if (status == nullptr) return;
  const Owned<invar_status> owner(status);
  size_t reason_size = 0, message_size = 0;
  const char* reason = invar_status_reason(status, &reason_size);
  const char* message = invar_status_message(status, &message_size);
  throw Error(invar_status_code(status), std::string(reason, reason_size), std::string(message, message_size),
              invar_status_callback_value(status));
}

// A string_view may point nowhere; the library wants a pointer.
inline const char* data(std::string_view text) { return text.data() == nullptr ? "" : text.data(); }

// A host's function lent to one call. What it throws is kept, stops the work, and is thrown again by check().
template <typename Event, typename Callback>
class Lent {
 public:
  explicit Lent(const std::function<int32_t(const Event&)>& function) : function_(function) {
    callback_.struct_size = sizeof(Callback);
    callback_.call = &Lent::call;
    callback_.user = this;
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  const Callback* callback() const noexcept { return function_ ? &callback_ : nullptr; }
  // Takes the status.
  void check(invar_status* status) const {
    Owned<invar_status> owner(status);
    if (exception_) std::rethrow_exception(exception_);
    detail::check(owner.release());
  }

 private:
  static int32_t call(void* user, const Event* event) noexcept {
    auto* self = static_cast<Lent*>(user);
    if (self->exception_) return -1;
    try {
      return self->function_(*event);
    } catch (...) {
      self->exception_ = std::current_exception();
      return -1;
    }
  }

  const std::function<int32_t(const Event&)>& function_;
  Callback callback_{};
  std::exception_ptr exception_;
};
using LentProgress = Lent<invar_progress, invar_progress_callback>;
using LentToken = Lent<invar_token, invar_token_callback>;

// What call(&out) makes, once check(status) has let it pass.
template <typename T, typename Check, typename Call>
Owned<T> take(const Check& check, const Call& call) {
  T* out = nullptr;
  invar_status* status = call(&out);
  Owned<T> owner(out);
  check(status);
  return owner;
}
inline std::string text(const Owned<invar_bytes>& bytes) {
  const auto* data = reinterpret_cast<const char*>(invar_bytes_data(bytes.get()));
  return data == nullptr ? std::string() : std::string(data, invar_bytes_size(bytes.get()));
}

template <typename T, typename Call>
T* made(const Call& call) {
  return take<T>([](invar_status* status) { check(status); }, call).release();
}
template <typename Call>
std::string bytes(const Call& call) {
  return text(take<invar_bytes>([](invar_status* status) { check(status); }, call));
}
// call(callback, &out), with a function of the host.
template <typename T, typename Lent, typename Function, typename Call>
Owned<T> take_with(const Function& function, const Call& call) {
  const Lent lent(function);
  return take<T>([&](invar_status* status) { lent.check(status); },
                 [&](T** out) { return call(lent.callback(), out); });
}

}  // namespace detail

// One handle, or none.
template <typename T>
class Handle {
 public:
  Handle() noexcept = default;
  // Takes over a handle of invar.h.
  explicit Handle(T* owned) noexcept : handle_(owned) {}
  // Borrowed.
  T* get() const noexcept { return handle_.get(); }
  // Owned by the caller from here on.
  T* release() noexcept { return handle_.release(); }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  detail::Owned<T> handle_;
};

// What a host lends to a runtime. Functions may be called from any thread, several at once, and are destroyed with the
// runtime and all that was made from it.
struct RuntimeOptions {
  // 0: one for each usable processor.
  int32_t threads = 0;
  // Exceptions are ignored.
  std::function<void(int32_t level, std::string_view message)> log;
  int32_t log_level = INVAR_LOG_INFO;
  // Both or none. An exception means that there is no memory.
  std::function<void*(size_t size, size_t alignment)> allocate;
  std::function<void(void* memory, size_t size)> deallocate;
  // All or none. An Error gives its code to the work that reads; another exception is INTERNAL.
  std::string file_prefix;
  std::function<int64_t(const char* path)> file_size;
  std::function<void(const char* path, int64_t offset, Memory buffer)> file_read_at;
  std::function<std::vector<std::string>(const char* directory)> file_list;
};

namespace detail {

// The C functions that stand for a host's RuntimeOptions.
struct Host {
  static const RuntimeOptions& of(void* user) { return *static_cast<const RuntimeOptions*>(user); }
  static void drop(void* user) { delete static_cast<RuntimeOptions*>(user); }
  static void log(void* user, int32_t level, const char* message, size_t size) noexcept {
    try {
      of(user).log(level, std::string_view(message, size));
    } catch (...) {
    }
  }
  static void* allocate(void* user, size_t size, size_t alignment) noexcept {
    try {
      return of(user).allocate(size, alignment);
    } catch (...) {
      return nullptr;
    }
  }
  static void deallocate(void* user, void* memory, size_t size) noexcept {
    try {
      of(user).deallocate(memory, size);
    } catch (...) {
    }
  }
  template <typename Function>
  static int32_t code_of(const Function& function) noexcept {
    try {
      function();
      return INVAR_OK;
    } catch (const Error& error) {
      return error.code() == INVAR_OK ? INVAR_UNKNOWN : error.code();
    } catch (...) {
      return INVAR_INTERNAL;
    }
  }
  static int32_t file_size(void* user, const char* path, int64_t* size) noexcept {
    return code_of([&] { *size = of(user).file_size(path); });
  }
  static int32_t file_read_at(void* user, const char* path, int64_t offset, void* buffer, size_t size) noexcept {
    return code_of([&] { of(user).file_read_at(path, offset, Memory(buffer, size)); });
  }
  static int32_t file_list(void* user, const char* directory, void (*add)(void*, const char*), void* list) noexcept {
    return code_of([&] {
      for (const std::string& name : of(user).file_list(directory)) add(list, name.c_str());
    });
  }
};

inline invar_runtime* create_runtime(const RuntimeOptions& options) {
  if (invar_abi_version() != INVAR_ABI_VERSION) {
    throw Error(INVAR_FAILED_PRECONDITION, "abi.mismatch",
                std::string("the loaded libinvar ") + invar_version_string() + " has abi " +
                    std::to_string(invar_abi_version()) + ", this program was built for abi " +
                    std::to_string(INVAR_ABI_VERSION));
  }
  invar_runtime_options raw = INVAR_RUNTIME_OPTIONS_INIT;
  raw.threads = options.threads;
  raw.log_level = options.log_level;
  std::unique_ptr<RuntimeOptions> log, allocator, files;
  if (options.log) {
    raw.log = Host::log;
    raw.log_drop = Host::drop;
    log = std::make_unique<RuntimeOptions>(options);
  }
  if (options.allocate || options.deallocate) {
    if (options.allocate) raw.allocate = Host::allocate;
    if (options.deallocate) raw.deallocate = Host::deallocate;
    raw.allocator_drop = Host::drop;
    allocator = std::make_unique<RuntimeOptions>(options);
  }
  if (options.file_size || options.file_read_at || options.file_list) {
    raw.file_prefix = options.file_prefix.c_str();
    if (options.file_size) raw.file_size = Host::file_size;
    if (options.file_read_at) raw.file_read_at = Host::file_read_at;
    if (options.file_list) raw.file_list = Host::file_list;
    raw.file_drop = Host::drop;
    files = std::make_unique<RuntimeOptions>(options);
  }
  // From here on the library drops them, also when it fails.
  raw.log_user = log.release();
  raw.allocator_user = allocator.release();
  raw.file_user = files.release();
  return made<invar_runtime>([&](invar_runtime** out) { return invar_runtime_create(&raw, out); });
}

}  // namespace detail

}  // namespace invar

#endif  // INVAR_SUPPORT_HPP_
