// Runs numbered pieces of work on the pool with one private state for each worker, and stops at the first failure.
//
// Invariant: pieces start in order, so the failure reported is the one with the smallest number, whatever the number
// of threads. Thread rule: run() from one thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>

#include "core/base/cancel.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"

namespace invar {

// work(piece, worker) -> Status, worker in [0, workers).
template <typename Work>
Status run_pieces(ThreadPool& pool, int workers, int64_t pieces, const CancelFlag* cancel, Work&& work) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  int64_t failed = std::numeric_limits<int64_t>::max();
  Status failure;
  pool.parallel_for(std::min<int64_t>(workers, pieces), [&](int64_t worker, int) {
    while (!stop.load(std::memory_order_relaxed)) {
      const int64_t piece = next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= pieces) return;
      Status status = check_cancel(cancel);
      if (status.ok()) status = work(piece, static_cast<int>(worker));
      if (status.ok()) continue;
      stop.store(true, std::memory_order_relaxed);
      std::lock_guard lock(mutex);
      if (piece < failed) {
        failed = piece;
        failure = std::move(status);
      }
    }
  });
  return failure;
}

}  // namespace invar
