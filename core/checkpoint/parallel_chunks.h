// Runs a fallible task over chunks of work on a pool or inline, and keeps the first failure.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "core/base/cancel.h"
#include "core/base/thread_pool.h"

namespace invar {

// task(item, worker) -> Status for item in [0, count); worker < workers_of(pool). After a failure or a cancel no
// further item starts. The failure of the lowest item that ran wins.
template <typename Task>
Status run_chunks(ThreadPool* pool, const CancelFlag* cancel, int64_t count, Task&& task) {
  if (pool == nullptr) {
    for (int64_t item = 0; item < count; ++item) {
      INVAR_TRY(check_cancel(cancel));
      INVAR_TRY(task(item, 0));
    }
    return {};
  }
  std::atomic<bool> stop{false};
  std::mutex mutex;
  Status failure;
  int64_t failed_item = count;
  pool->parallel_for(count, [&](int64_t item, int worker) {
    if (stop.load(std::memory_order_relaxed)) return;
    Status status = check_cancel(cancel);
    if (status.ok()) status = task(item, worker);
    if (status.ok()) return;
    stop.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(mutex);
    if (item < failed_item) {
      failed_item = item;
      failure = std::move(status);
    }
  });
  return failure;
}

inline int workers_of(const ThreadPool* pool) { return pool == nullptr ? 1 : pool->threads(); }

}  // namespace invar
