// What the processor and its memory allow, measured now: benchmarks take a sample beside each of their own, because
// machines whose cores share units with other work change their speed from one second to the next.
//
//   MachineLimits limits(pool);
//   INVAR_TRY(limits.use_memory(*device));
//   for (...) { limits.sample_products(DType::kBF16); limits.sample_triad(); ... one's own ... }
//   limits.products(), limits.triad()        // best of the samples, all threads together
//
// Thread rule: one thread.
#pragma once

#include "core/base/status.h"
#include "core/base/thread_pool.h"
#include "core/device/device.h"
#include "core/numerics/dtype.h"

namespace invar {

class MachineLimits {
 public:
  explicit MachineLimits(ThreadPool& pool) : pool_(pool) {}

  // Three arrays far larger than a core's share of the caches; needed once before the memory samples.
  Status use_memory(Device& device);

  // Multiplying and adding in registers on operands of `dtype`, a few milliseconds on every thread.
  void sample_products(DType dtype);
  // One pass over the arrays each.
  void sample_triad();
  void sample_read();
  void sample_write();

  double products() const { return products_; }  // GFLOP/s
  double triad() const { return triad_; }        // GB/s (1e9 bytes), streaming stores
  double read() const { return read_; }
  double write() const { return write_; }

 private:
  float* array(int index) const { return memory_.as<float>() + index * elements_; }
  // body(first element): one piece. GB/s for `bytes` an element.
  template <typename Body>
  double pass(double bytes, const Body& body);

  ThreadPool& pool_;
  DeviceBuffer memory_;
  int64_t elements_ = 0;  // of one array
  double products_ = 0, triad_ = 0, read_ = 0, write_ = 0;
};

}  // namespace invar
