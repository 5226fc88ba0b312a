// A Context on a pool of its own, for tests and benchmarks of kernels.
//
//   TestContext context(2);                       // two threads
//   reference::rope(context.get(), args);
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "core/base/thread_pool.h"
#include "core/device/cpu/kernels.h"
#include "core/numerics/formats.h"

namespace invar::cpu {

class TestContext {
 public:
  explicit TestContext(int threads, Level level = Level::kPortable) : pool_(threads) {
    context_.host.struct_size = sizeof(invar_backend_host);
    context_.host.host = &pool_;
    context_.host.threads = threads;
    context_.host.parallel_for = [](void* host, int64_t count, void (*task)(void*, int64_t, int32_t), void* user) {
      static_cast<ThreadPool*>(host)->parallel_for(count, [&](int64_t item, int worker) { task(user, item, worker); });
    };
    context_.host.allocate = [](void*, size_t bytes, size_t alignment) {
      return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    };
    context_.host.release = [](void*, void* memory, size_t) { std::free(memory); };
    context_.level = level;
    context_.threads = threads;
    worker_scratch_.resize(static_cast<size_t>(kScratchSlots * threads), ScratchMemory{nullptr, 0});
    context_.worker_scratch = worker_scratch_.data();
  }
  ~TestContext() {
    for (ScratchMemory& scratch : worker_scratch_) std::free(scratch.memory);
    for (ScratchMemory& scratch : context_.shared_scratch) std::free(scratch.memory);
  }
  TestContext(const TestContext&) = delete;
  TestContext& operator=(const TestContext&) = delete;

  Context& get() { return context_; }
  ThreadPool& pool() { return pool_; }
  int threads() const { return pool_.threads(); }

 private:
  ThreadPool pool_;
  std::vector<ScratchMemory> worker_scratch_;
  Context context_{};
};

// Fixed pseudo-random floats, about N(0, scale).
inline std::vector<float> random_floats(size_t count, uint32_t seed, float scale = 1) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    // Four uniform numbers of variance 1/12 each: the same on every standard library.
    double sum = -2;
    for (int i = 0; i < 4; ++i) sum += engine() * 0x1p-32;
    value = static_cast<float>(sum * 1.7320508 * scale);
  }
  return values;
}

// An array stored as F32 or BF16, read back as FP64. Made from floats; BF16 rounds them.
class Stored {
 public:
  Stored(int32_t dtype, const std::vector<float>& values) : dtype_(dtype), count_(values.size()) {
    if (dtype == kF32) {
      floats_ = values;
    } else {
      for (float value : values) halves_.push_back(bf16_from_f32(value));
    }
  }
  Stored(int32_t dtype, size_t count, float fill = 0) : Stored(dtype, std::vector<float>(count, fill)) {}

  void* data() { return dtype_ == kF32 ? static_cast<void*>(floats_.data()) : static_cast<void*>(halves_.data()); }
  double at(size_t i) const { return dtype_ == kF32 ? double{floats_[i]} : double{f32_from_bf16(halves_[i])}; }
  size_t size() const { return count_; }
  int32_t dtype() const { return dtype_; }
  std::vector<double> values() const {
    std::vector<double> all(count_);
    for (size_t i = 0; i < count_; ++i) all[i] = at(i);
    return all;
  }
  // The same bits, or both NaN.
  bool operator==(const Stored& other) const;

 private:
  int32_t dtype_;
  size_t count_;
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
};

inline bool Stored::operator==(const Stored& other) const {
  if (dtype_ != other.dtype_ || count_ != other.count_) return false;
  for (size_t i = 0; i < count_; ++i) {
    const bool are_nan = at(i) != at(i) && other.at(i) != other.at(i);
    if (!are_nan && std::bit_cast<uint64_t>(at(i)) != std::bit_cast<uint64_t>(other.at(i))) return false;
  }
  return true;
}

// Half a unit in the last place, relative: one rounding to the dtype.
inline double rounding_unit(int32_t dtype) { return dtype == kF32 ? 0x1p-24 : 0x1p-8; }

}  // namespace invar::cpu
