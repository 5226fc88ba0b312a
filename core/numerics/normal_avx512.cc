// fill_normal for AVX-512.
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "core/numerics/normal_kernels.h"

namespace invar {
namespace {

constexpr int kLanes = 8;
#include "core/numerics/normal_pairs.inl.h"

}  // namespace

void normal_pairs_avx512(uint64_t seed, uint64_t stream, uint64_t first, int64_t draws, float* out) {
  normal_pairs(seed, stream, first, draws, out);
}

}  // namespace invar
#endif
