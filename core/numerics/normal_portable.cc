// fill_normal for every processor.
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/numerics/normal_kernels.h"

namespace invar {
namespace {

constexpr int kLanes = 2;
#include "core/numerics/normal_pairs.inl.h"

}  // namespace

void normal_pairs_portable(uint64_t seed, uint64_t stream, uint64_t first, int64_t draws, float* out) {
  normal_pairs(seed, stream, first, draws, out);
}

}  // namespace invar
