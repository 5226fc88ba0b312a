#include "core/model/cache.h"

namespace invar {

Result<std::unique_ptr<DecoderCache>> DecoderCache::create(Device& device, const ModelShape& shape, DType dtype,
                                                           int64_t capacity) {
  std::unique_ptr<DecoderCache> cache(new DecoderCache(shape, dtype, capacity));
  const int64_t elements = shape.layers * capacity * 2 * shape.kv_size();
  INVAR_ASSIGN(cache->memory_, device.allocate(static_cast<size_t>(bytes_of(dtype, elements))));
  return cache;
}

}  // namespace invar
