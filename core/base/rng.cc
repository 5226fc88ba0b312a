#include "core/base/rng.h"

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

struct Pair {
  double radius, angle;
};

// Box-Muller on 53-bit uniforms; draw i feeds indices 2i and 2i+1.
Pair draw_pair(uint64_t seed, uint64_t stream, uint64_t draw) {
  const auto words = philox4x32(seed, draw, stream);
  const double u = (static_cast<double>((uint64_t{words[1]} << 32 | words[0]) >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>((uint64_t{words[3]} << 32 | words[2]) >> 11) * 0x1p-53;
  return {std::sqrt(-2.0 * std::log(u)), 6.283185307179586 * v};
}

}  // namespace

float normal_at(uint64_t seed, uint64_t stream, uint64_t index) {
  const Pair pair = draw_pair(seed, stream, index / 2);
  return static_cast<float>(pair.radius * (index % 2 == 0 ? std::cos(pair.angle) : std::sin(pair.angle)));
}

void fill_normal(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, float* out) {
  int64_t i = 0;
  if (count > 0 && first % 2 != 0) out[i++] = normal_at(seed, stream, first);
  for (; i + 1 < count; i += 2) {
    const Pair pair = draw_pair(seed, stream, (first + static_cast<uint64_t>(i)) / 2);
    out[i] = static_cast<float>(pair.radius * std::cos(pair.angle));
    out[i + 1] = static_cast<float>(pair.radius * std::sin(pair.angle));
  }
  if (i < count) out[i] = normal_at(seed, stream, first + static_cast<uint64_t>(i));
}

}  // namespace invar
