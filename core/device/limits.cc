#include "core/device/limits.h"

#include <algorithm>
#include <vector>

#include "core/device/cpu/bench/peak.h"
#include "core/device/cpu/bench/streams.h"

namespace invar {
namespace {

constexpr int64_t kElements = int64_t{48} << 20;  // 192 MiB an array
constexpr int64_t kPiece = int64_t{1} << 18;      // 1 MiB: streams stay long, threads end together
constexpr double kProductSeconds = 0.004;

}  // namespace

Status MachineLimits::use_memory(Device& device) {
  if (elements_ > 0) return {};
  INVAR_ASSIGN(memory_, device.allocate(static_cast<size_t>(3 * kElements) * sizeof(float)));
  elements_ = kElements;
  // Pages that were never written are one shared page of zeros, and reading it measures the cache.
  pool_.parallel_for(3 * kElements / kPiece,
                     [&](int64_t piece, int) { cpu::stream_write(memory_.as<float>() + piece * kPiece, kPiece); });
  return {};
}

void MachineLimits::sample_products(DType dtype) {
  std::vector<double> rates(static_cast<size_t>(pool_.threads()));
  pool_.parallel_for(pool_.threads(), [&](int64_t item, int) {
    rates[static_cast<size_t>(item)] = cpu::products_now(dtype == DType::kBF16, kProductSeconds, cpu::seconds_now);
  });
  double total = 0;
  for (double rate : rates) total += rate;
  products_ = std::max(products_, total);
}

template <typename Body>
double MachineLimits::pass(double bytes, const Body& body) {
  if (elements_ == 0) return 0;
  const double start = cpu::seconds_now();
  pool_.parallel_for(elements_ / kPiece, [&](int64_t piece, int) { body(piece * kPiece); });
  return bytes * static_cast<double>(elements_) / (cpu::seconds_now() - start) / 1e9;
}

void MachineLimits::sample_triad() {
  triad_ = std::max(triad_, pass(12, [&](int64_t first) {
                      cpu::stream_triad(array(0) + first, array(1) + first, array(2) + first, kPiece);
                    }));
}

void MachineLimits::sample_read() {
  std::vector<float> sums(static_cast<size_t>(elements_ / kPiece));  // keeps the reads alive
  read_ = std::max(read_, pass(4, [&](int64_t first) {
                     sums[static_cast<size_t>(first / kPiece)] = cpu::stream_read(array(1) + first, kPiece);
                   }));
}

void MachineLimits::sample_write() {
  write_ = std::max(write_, pass(4, [&](int64_t first) { cpu::stream_write(array(0) + first, kPiece); }));
}

}  // namespace invar
