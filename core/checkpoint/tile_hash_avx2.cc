#include <stdint.h>
#include <xxhash.h>

#include "core/checkpoint/tile_hash.h"

namespace invar {

uint64_t tile_hash_avx2(const void* bytes, int64_t n) { return XXH3_64bits(bytes, static_cast<size_t>(n)); }

}  // namespace invar
