#include "core/base/rng.h"

#include <bit>
#include <cmath>

namespace invar {

uint64_t Rng::next_below(uint64_t bound) {
  // Rejects the incomplete last interval of the 64-bit range.
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  uint64_t draw;
  do draw = next_u64();
  while (draw >= limit);
  return draw % bound;
}

namespace {

// Natural logarithm of u in (0, 1], to a few units of FP32 rounding: by the series of atanh.
float log_of_unit(float u) {
  uint32_t bits = std::bit_cast<uint32_t>(u);
  // Mantissa in [sqrt(1/2), sqrt(2)), so that the series converges fast and log(1) is exact.
  const int32_t exponent = static_cast<int32_t>(bits - 0x3F3504F3u) >> 23;
  const float mantissa = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23));
  const float s = (mantissa - 1) / (mantissa + 1), s2 = s * s;
  const float series = 2 * s * (1 + s2 * (1.0f / 3 + s2 * (1.0f / 5 + s2 * (1.0f / 7 + s2 * (1.0f / 9)))));
  return static_cast<float>(exponent) * 0.693147181f + series;
}

// A pair of standard normal values from two random words: Box and Muller 1958, in FP32.
void normal_pair(uint32_t radius_word, uint32_t angle_word, float* out) {
  const float u = static_cast<float>((radius_word >> 8) + 1) * 0x1p-24f;
  const float radius = std::sqrt(-2 * log_of_unit(u));
  // The angle in quarter turns: the nearest whole quarter, and the rest in [-1/2, 1/2].
  const uint32_t turns = angle_word >> 8;
  const uint32_t quarter = (turns + (1u << 21)) >> 22;
  const float rest = static_cast<float>(static_cast<int32_t>(turns - (quarter << 22))) * (0x1p-22f * 1.57079633f);
  const float r2 = rest * rest;
  const float sine = rest * (1 + r2 * (-1.0f / 6 + r2 * (1.0f / 120 + r2 * (-1.0f / 5040 + r2 * (1.0f / 362880)))));
  const float cosine = 1 + r2 * (-1.0f / 2 + r2 * (1.0f / 24 + r2 * (-1.0f / 720 + r2 * (1.0f / 40320))));
  const bool swapped = (quarter & 1) != 0;
  const float x = swapped ? -sine : cosine, y = swapped ? cosine : sine;
  const float signed_radius = (quarter & 2) != 0 ? -radius : radius;
  out[0] = signed_radius * x;
  out[1] = signed_radius * y;
}

// Values 4 * block to 4 * block + 3.
void normal_block(uint64_t seed, uint64_t stream, uint64_t block, float* out) {
  const auto words = philox4x32(seed, block, stream);
  normal_pair(words[0], words[1], out);
  normal_pair(words[2], words[3], out + 2);
}

}  // namespace

float normal_at(uint64_t seed, uint64_t stream, uint64_t index) {
  float values[4];
  normal_block(seed, stream, index / 4, values);
  return values[index % 4];
}

void fill_normal(uint64_t seed, uint64_t stream, uint64_t first, std::span<float> out) {
  size_t i = 0;
  for (; i < out.size() && (first + i) % 4 != 0; ++i) out[i] = normal_at(seed, stream, first + i);
  for (; i + 4 <= out.size(); i += 4) normal_block(seed, stream, (first + i) / 4, out.data() + i);
  for (; i < out.size(); ++i) out[i] = normal_at(seed, stream, first + i);
}

}  // namespace invar
