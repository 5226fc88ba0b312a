// Normally distributed numbers from counters: the value depends on (seed, stream, index) only, so it is the same for
// any number of threads, ranks or shards, and on every instruction set.
//
//   fill_normal(seed, stream, first, count, out);
//
// Box and Muller 1958 on 53-bit uniforms of Philox (core/base/rng.h): draw i feeds indices 2i and 2i + 1.
// Thread rule: functions.
#pragma once

#include <cstdint>

#include "core/numerics/cpu_features.h"

namespace invar {

// The standard normal value number `index` of (seed, stream).
float normal_at(uint64_t seed, uint64_t stream, uint64_t index);
// out[i] = normal_at(seed, stream, first + i).
void fill_normal(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, float* out,
                 CpuLevel level = cpu_level());

}  // namespace invar
