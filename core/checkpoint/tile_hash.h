// XXH3 (64 bits) of a run of bytes, compiled for each instruction set: the digest is the same, the rate is not.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "core/numerics/cpu_features.h"

namespace invar {

uint64_t tile_hash(const void* bytes, int64_t n, CpuLevel level);

// One instruction set each; tile_hash chooses.
uint64_t tile_hash_avx2(const void* bytes, int64_t n);
uint64_t tile_hash_avx512(const void* bytes, int64_t n);

}  // namespace invar
