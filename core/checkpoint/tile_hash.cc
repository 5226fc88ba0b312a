#include "core/checkpoint/tile_hash.h"

#include <xxhash.h>

namespace invar {

uint64_t tile_hash(const void* bytes, int64_t n, CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return tile_hash_avx512(bytes, n);
  if (level >= CpuLevel::kAvx2) return tile_hash_avx2(bytes, n);
  return XXH3_64bits(bytes, static_cast<size_t>(n));
}

}  // namespace invar
