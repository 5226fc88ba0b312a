// The one thread pool. A parallel_for cuts `count` items into tasks that workers take one by one.
//
//   ThreadPool pool(2);                       // the caller plus one worker
//   pool.parallel_for(tiles, [&](int64_t tile, int worker) { ... });
//
// Invariant: which worker runs a task never decides a result: callers cut work at boundaries that
// do not depend on the number of threads. The calling thread takes part, so a pool of one thread
// runs everything inline and starts nothing. Waiting workers spin briefly, then sleep.
// Thread rule: calls from several threads are serialised; a nested call runs inline.
#pragma once

#include <cstdint>
#include <memory>

namespace invar {

// A non-owning reference to a callable (tile, worker); valid for the call only.
class TaskRef {
 public:
  template <typename F>
  TaskRef(F& function)  // NOLINT: implicit by design
      : object_(&function),
        call_([](void* object, int64_t item, int worker) { (*static_cast<F*>(object))(item, worker); }) {}
  void operator()(int64_t item, int worker) const { call_(object_, item, worker); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int);
};

class ThreadPool {
 public:
  // threads >= 1: the caller counts as one. 0 takes the number of usable processors.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Runs task(item, worker) for item in [0, count); worker in [0, threads()). Returns when all are done.
  // Tasks must not throw.
  template <typename F>
  void parallel_for(int64_t count, F&& task) {
    auto& reference = task;
    run(count, TaskRef(reference));
  }

 private:
  void run(int64_t count, TaskRef task);

  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

}  // namespace invar
