#include "core/base/rng.h"

namespace invar {

uint64_t Rng::next_below(uint64_t bound) {
  // Rejects the incomplete last interval of the 64-bit range.
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  uint64_t draw;
  do draw = next_u64();
  while (draw >= limit);
  return draw % bound;
}

}  // namespace invar
