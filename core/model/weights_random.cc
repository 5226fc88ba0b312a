#include <algorithm>

#include "core/model/weight_source.h"
#include "core/numerics/normal.h"

namespace invar {

RandomWeights::RandomWeights(uint64_t seed, std::shared_ptr<ThreadPool> pool, float deviation)
    : seed_(seed), pool_(std::move(pool)), deviation_(deviation) {}

Status RandomWeights::read(size_t index, const ParameterSpec& parameter, int64_t first, int64_t count, float* out) {
  if (parameter.kind == ParameterKind::kVector) {
    std::fill(out, out + count, parameter.initial);
    return {};
  }
  constexpr int64_t kPiece = 4096;
  pool_->parallel_for((count + kPiece - 1) / kPiece, [&](int64_t piece, int) {
    const int64_t begin = piece * kPiece, end = std::min(count, begin + kPiece);
    fill_normal(seed_, index, static_cast<uint64_t>(first + begin), end - begin, out + begin);
    for (int64_t i = begin; i < end; ++i) out[i] *= deviation_;
  });
  return {};
}

}  // namespace invar
