// What kernel benchmarks share: best and median of several timings, and the machine's bandwidth in the same run.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "core/device/cpu/testing/test_context.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace invar::cpu {

struct Timing {
  double best, median;  // seconds
};

// With one thread its CPU time, so that other programs on the core do not count; else the wall clock.
inline double bench_seconds(int threads) {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  if (threads == 1) {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
#endif
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename Function>
Timing time_runs(const TestContext& context, int runs, const Function& function) {
  std::vector<double> seconds;
  for (int run = 0; run < runs; ++run) {
    const double start = bench_seconds(context.threads());
    function();
    seconds.push_back(bench_seconds(context.threads()) - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

// a = b + 3 c with streaming stores (McCalpin's STREAM triad, 12 bytes an element): what memory gives at best.
class Triad {
 public:
  explicit Triad(int64_t count) : a_(count), b_(count, 1.f), c_(count, 2.f) {}

  // Bytes a second, best of `runs`.
  double bandwidth(TestContext& context, int runs) {
    constexpr int64_t kPiece = 1 << 16;
    const int64_t count = static_cast<int64_t>(a_.size()) / kPiece * kPiece;
    const Timing timing = time_runs(context, runs, [&] {
      context.pool().parallel_for(count / kPiece, [&](int64_t piece, int) {
        for (int64_t i = piece * kPiece; i < (piece + 1) * kPiece; i += 4) one(i);
      });
    });
    return 12.0 * static_cast<double>(count) / timing.best;
  }

 private:
  void one(int64_t i) {
#if defined(__x86_64__)
    // Vectors are 16-byte aligned by the allocator.
    _mm_stream_ps(&a_[i], _mm_add_ps(_mm_load_ps(&b_[i]), _mm_mul_ps(_mm_set1_ps(3), _mm_load_ps(&c_[i]))));
#else
    for (int64_t k = i; k < i + 4; ++k) a_[k] = b_[k] + 3 * c_[k];
#endif
  }

  std::vector<float> a_, b_, c_;
};

}  // namespace invar::cpu
