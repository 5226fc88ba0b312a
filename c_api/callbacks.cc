#include "c_api/internal/callbacks.h"

#include <cstddef>

namespace invar::abi {

Outcome Call::finish(Status status) const {
  if (exception_) {
    return Error(Code::kInternal, "callback.exception", "a callback of the host let an exception out");
  }
  if (value_ != 0) {
    return Outcome(Error(Code::kAborted, "callback.stopped", cat("stopped by a callback with value ", value_)), value_);
  }
  return status;
}

Result<std::unique_ptr<Progress>> Progress::create(const char* function, const invar_progress_callback* callback,
                                                   const invar_cancel* cancel) {
  invar_progress_callback copy = INVAR_PROGRESS_CALLBACK_INIT;
  if (callback != nullptr) {
    constexpr size_t kVersion1 = offsetof(invar_progress_callback, drop) + sizeof(invar_drop_fn);
    INVAR_TRY(copy_struct(function, callback, kVersion1, &copy));
  }
  return std::unique_ptr<Progress>(new Progress(copy, cancel));
}

void Progress::emit(invar_progress event) {
  if (!wanted() || std::this_thread::get_id() != caller_) return;
  event.struct_size = sizeof(event);
  event.seconds = seconds();
  call_.invoke([&] { return callback_.call(callback_.user, &event); });
}

void Progress::work(const char* stage, const std::string& detail, const char* unit, int64_t done, int64_t total) {
  if (!wanted()) return;
  {
    std::lock_guard lock(mutex_);
    if (std::string_view(last_.stage) != stage || done > last_.done || last_.total != total) {
      last_ = {stage, detail, unit, done, total, std::this_thread::get_id() == caller_};
    }
  }
  emit({0, INVAR_PROGRESS_WORK, stage, detail.c_str(), unit, done, total, 0, nullptr, nullptr});
}

void Progress::finish_work() {
  if (!wanted() || call_.stopped_by_callback()) return;
  Work last;
  {
    std::lock_guard lock(mutex_);
    last = last_;
    last_.told = true;
  }
  if (last.told) return;
  invar_progress event = {sizeof(event), INVAR_PROGRESS_WORK,
                          last.stage,    last.detail.c_str(),
                          last.unit,     last.done,
                          last.total,    seconds(),
                          nullptr,       nullptr};
  call_.tell([&] { callback_.call(callback_.user, &event); });
}

void Progress::note(const char* stage, const std::string& detail) {
  emit({0, INVAR_PROGRESS_NOTE, stage, detail.c_str(), "", 0, 0, 0, nullptr, nullptr});
}

void Progress::step(const invar_step_metrics& metrics, int64_t total_steps) {
  emit({0, INVAR_PROGRESS_STEP, "train", "", "steps", metrics.step, total_steps, 0, &metrics, nullptr});
}

void Progress::eval(const invar_eval_metrics& metrics, int64_t total_steps) {
  emit({0, INVAR_PROGRESS_EVAL, "eval", "", "steps", metrics.step, total_steps, 0, nullptr, &metrics});
}

}  // namespace invar::abi
