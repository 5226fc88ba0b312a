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

float normal_at(uint64_t seed, uint64_t stream, uint64_t index) {
  // Box-Muller on 53-bit uniforms; one draw feeds indices 2i and 2i+1.
  const auto words = philox4x32(seed, index / 2, stream);
  const double u = (static_cast<double>((uint64_t{words[1]} << 32 | words[0]) >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>((uint64_t{words[3]} << 32 | words[2]) >> 11) * 0x1p-53;
  const double radius = std::sqrt(-2.0 * std::log(u)), angle = 6.283185307179586 * v;
  return static_cast<float>(radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

}  // namespace invar
