// Host callbacks as the core sees them. What a callback returns or throws never passes through the core: it is noted
// here, the work is stopped by a cancel flag, and finish() turns the note into the call's status.
// Thread rule: one call of the library owns one adapter. Events from worker threads are left out: a host's callback
// runs on the thread that called the library, which takes part in the work.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "c_api/internal/handles.h"

namespace invar::abi {

// Copies the caller's struct by its size; fields it does not have stay zero. "argument.struct_size" when it is smaller
// than version 1 (`minimum`).
template <typename Struct>
Status copy_struct(const char* function, const Struct* from, size_t minimum, Struct* to) {
  if (from->struct_size < minimum) {
    return Error(
        Code::kInvalidArgument, "argument.struct_size",
        cat(function, ": struct_size ", from->struct_size, " is not >= ", minimum, ": use the struct's initializer"));
  }
  *to = {};
  __builtin_memcpy(to, from, from->struct_size < sizeof(Struct) ? from->struct_size : sizeof(Struct));
  return {};
}

// Fills the caller's struct up to its own size, and leaves struct_size as the caller set it.
template <typename Struct>
void fill_struct(const Struct& from, Struct* to) {
  const uint32_t size = to->struct_size;
  Struct copy = from;
  copy.struct_size = size;
  __builtin_memcpy(to, &copy, size < sizeof(Struct) ? size : sizeof(Struct));
}

template <typename Struct>
Status check_struct(const char* function, const Struct* out, size_t minimum) {
  Struct ignored;
  return out == nullptr ? Status() : copy_struct(function, out, minimum, &ignored);
}

// The stop flag of one call, below the caller's, and what a callback left behind.
class Call {
 public:
  explicit Call(const invar_cancel* cancel)
      : parent_(cancel == nullptr ? nullptr : cancel->flag), flag_(parent_.get()) {}

  const CancelFlag* flag() const { return &flag_; }
  bool stopped_by_callback() const { return value_ != 0 || exception_; }
  // Runs a host function; its non-zero result or its exception stops the work.
  template <typename Function>
  void invoke(Function&& function) noexcept {
    if (stopped_by_callback()) return;
    try {
      value_ = function();
    } catch (...) {
      exception_ = true;
    }
    if (stopped_by_callback()) flag_.cancel();
  }
  // Runs a host function when the work is done: its result stops nothing any more.
  template <typename Function>
  void tell(Function&& function) noexcept {
    try {
      function();
    } catch (...) {
      exception_ = true;
    }
  }
  // The work's status, or what a callback made of it.
  Outcome finish(Status status) const;

 private:
  std::shared_ptr<CancelFlag> parent_;
  CancelFlag flag_;
  int32_t value_ = 0;
  bool exception_ = false;
};

// The progress callback of one call. The host hears it on its own thread only; what other threads report of work is
// kept, so that the host is told of the last of it.
class Progress {
 public:
  // callback may be null. drop runs when this object ends.
  static Result<std::unique_ptr<Progress>> create(const char* function, const invar_progress_callback* callback,
                                                  const invar_cancel* cancel);

  Call& call() { return call_; }
  const CancelFlag* flag() const { return call_.flag(); }
  bool wanted() const { return callback_.call != nullptr; }
  void work(const char* stage, const std::string& detail, const char* unit, int64_t done, int64_t total);
  void note(const char* stage, const std::string& detail);
  void step(const invar_step_metrics& metrics, int64_t total_steps);
  void eval(const invar_eval_metrics& metrics, int64_t total_steps);
  // After the last report of work that succeeded: tells the host of it where it has not heard of it yet.
  void finish_work();

 private:
  // Work as it stands: the furthest report, and whether the host has heard it.
  struct Work {
    const char* stage = "";
    std::string detail;
    const char* unit = "";
    int64_t done = 0, total = 0;
    bool told = true;
  };

  Progress(const invar_progress_callback& callback, const invar_cancel* cancel)
      : callback_(callback), dropper_(callback.drop, callback.user), call_(cancel) {}
  void emit(invar_progress event);
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  invar_progress_callback callback_;
  Dropper dropper_;
  Call call_;
  std::mutex mutex_;
  Work last_;  // under mutex_
  std::thread::id caller_ = std::this_thread::get_id();
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace invar::abi
