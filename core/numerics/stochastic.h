// Stochastic rounding: up or down with probabilities that make the mean exact.
//
//   convert_f32_to_bf16_stochastic(master, working, count, {seed, step}, first_index);
//
// The random number of an element depends on (seed, step, its global index) only, so the result does not
// depend on sharding, ranks or threads, replicas agree, and a step can be done again. Exact values never
// move. Values beyond the largest finite one saturate in 8-bit formats and go to Inf in FP16 and BF16,
// as in formats.h. The probability has a resolution of 2^-32 of a unit.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "core/numerics/formats.h"

namespace invar {

struct StochasticKey {
  uint64_t seed = 0;
  uint64_t step = 0;
};

// The 32 random bits of element `index`.
uint32_t stochastic_bits(const StochasticKey& key, uint64_t index);

// Rounds up in magnitude when the dropped fraction, in units of 2^-32, is above `random`. Not for E8M0.
uint32_t encode_stochastic(DType format, float value, uint32_t random);

// Element i of the span has the global index first_index + i.
void convert_f32_to_bf16_stochastic(const float* in, uint16_t* out, int64_t count, const StochasticKey& key,
                                    uint64_t first_index);
void convert_f32_to_f16_stochastic(const float* in, uint16_t* out, int64_t count, const StochasticKey& key,
                                   uint64_t first_index);
// One of the four 8-bit floats, of in * scale.
void convert_f32_to_fp8_stochastic(DType format, const float* in, uint8_t* codes, int64_t count, float scale,
                                   const StochasticKey& key, uint64_t first_index);

}  // namespace invar
