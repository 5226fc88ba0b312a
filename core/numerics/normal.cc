#include "core/numerics/normal.h"

#include "core/numerics/normal_kernels.h"

namespace invar {
namespace {

auto pairs_of(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512) return normal_pairs_avx512;
  if (level >= CpuLevel::kAvx2) return normal_pairs_avx2;
#endif
  (void)level;
  return normal_pairs_portable;
}

}  // namespace

float normal_at(uint64_t seed, uint64_t stream, uint64_t index) {
  float pair[2];
  normal_pairs_portable(seed, stream, index / 2, 1, pair);
  return pair[index % 2];
}

void fill_normal(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, float* out, CpuLevel level) {
  if (count <= 0) return;
  if (first % 2 != 0) {
    *out++ = normal_at(seed, stream, first++);
    --count;
  }
  pairs_of(level)(seed, stream, first / 2, count / 2, out);
  if (count % 2 != 0) out[count - 1] = normal_at(seed, stream, first + static_cast<uint64_t>(count) - 1);
}

}  // namespace invar
