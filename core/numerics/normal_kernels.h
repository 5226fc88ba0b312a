// The instruction sets' versions of fill_normal for whole pairs. Internal to this folder.
#pragma once

#include <stdint.h>

namespace invar {

// out[2i], out[2i + 1] from draw first + i, for i in [0, draws).
void normal_pairs_portable(uint64_t seed, uint64_t stream, uint64_t first, int64_t draws, float* out);
#if defined(__x86_64__)
void normal_pairs_avx2(uint64_t seed, uint64_t stream, uint64_t first, int64_t draws, float* out);
void normal_pairs_avx512(uint64_t seed, uint64_t stream, uint64_t first, int64_t draws, float* out);
#endif

}  // namespace invar
