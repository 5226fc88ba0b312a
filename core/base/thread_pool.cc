#include "core/base/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace invar {
namespace {

constexpr int kSpins = 2000;  // about 20 microseconds: longer than the gap between two products of a step

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

thread_local bool inside_task = false;

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex caller;  // one parallel_for at a time
  std::mutex mutex;
  std::condition_variable wake, done;
  std::atomic<uint64_t> generation{0};
  std::atomic<bool> stopping{false};
  // The running job. Written before `generation` is raised, read after it is seen.
  const TaskRef* task = nullptr;
  int64_t count = 0;
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};
  std::exception_ptr failure;  // the first of the job, under `mutex`

  // An exception, such as one for memory, ends the job and reaches its caller.
  void take_items(int worker) noexcept {
    inside_task = true;
    try {
      for (int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < count;) (*task)(item, worker);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next.store(count, std::memory_order_relaxed);
    }
    inside_task = false;
  }

  void work(int worker) {
    uint64_t seen = 0;
    while (true) {
      for (int spin = 0; spin < kSpins && generation.load(std::memory_order_acquire) == seen; ++spin) pause_cpu();
      if (generation.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
      }
      seen = generation.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_acquire)) return;
      take_items(worker);
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }

  void start_generation() {
    {
      std::lock_guard lock(mutex);
      generation.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads), state_(std::make_unique<State>()) {
  if (threads_ <= 0) threads_ = static_cast<int>(std::thread::hardware_concurrency());
  if (threads_ <= 0) threads_ = 1;
  state_->workers.reserve(static_cast<size_t>(threads_ - 1));
  for (int worker = 1; worker < threads_; ++worker) {
    try {
      state_->workers.emplace_back([state = state_.get(), worker] { state->work(worker); });
    } catch (const std::system_error&) {
      threads_ = worker;  // the system gives no more: those that run do the work
    }
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_release);
  state_->start_generation();
  for (auto& worker : state_->workers) worker.join();
}

void ThreadPool::run(int64_t count, TaskRef task) {
  if (count <= 0) return;
  if (threads_ == 1 || count == 1 || inside_task) {
    for (int64_t item = 0; item < count; ++item) task(item, 0);
    return;
  }
  std::lock_guard one_at_a_time(state_->caller);
  State& state = *state_;
  state.task = &task;
  state.count = count;
  state.next.store(0, std::memory_order_relaxed);
  state.busy.store(threads_ - 1, std::memory_order_relaxed);
  state.start_generation();
  state.take_items(0);
  for (int spin = 0; spin < kSpins && state.busy.load(std::memory_order_acquire) != 0; ++spin) pause_cpu();
  if (state.busy.load(std::memory_order_acquire) != 0) {
    std::unique_lock lock(state.mutex);
    state.done.wait(lock, [&] { return state.busy.load(std::memory_order_acquire) == 0; });
  }
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

}  // namespace invar
