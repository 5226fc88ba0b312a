// The pair engine on vdpbf16ps: 12 x 32 micro-tiles. The instruction adds two products to an FP32 sum, rounding
// to nearest even and flushing subnormal inputs and results to zero, whatever MXCSR says.
#include "core/device/cpu/matmul/pair_operands.h"
#include "core/device/cpu/matmul/store_tile.h"

namespace invar::cpu {
namespace INVAR_LEVEL_NAME {
namespace {

constexpr int kMr = 12, kNv = 2;
constexpr int64_t kStep = 2, kBlock = 768;

size_t sliver_bytes(int64_t k, int32_t) { return static_cast<size_t>(kMr * pair_row_stride(k)) * sizeof(uint16_t); }

void prepare_a(void* to, const Operand& a, int64_t rows, int64_t k) { prepare_pair_a(to, a, rows, k, 1); }
void prepare_b(void* to, const Operand& b, int64_t k, int64_t cols) { prepare_pair_b(to, b, k, cols, kStep); }
const void* open_panel(void*, const void* packed, int32_t, int64_t) { return packed; }

// The pair at an element of A, as one lane.
INVAR_INLINE __m512bh pair_at(const uint16_t* from) {
  int32_t pair;
  memcpy(&pair, from, sizeof(pair));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

template <int kRows>
void multiply_rows(const uint16_t* a, const uint16_t* b, int64_t k, float* tile, int32_t accumulate) {
  __m512 sum[kRows][kNv];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) {
      sum[r][j] = accumulate ? _mm512_loadu_ps(tile + r * kPairNr + j * kLanes) : _mm512_setzero_ps();
    }
  }
  const int64_t stride = pair_row_stride(k);
  const uint16_t* third[(kRows + 2) / 3];
#pragma GCC unroll 8
  for (int t = 0; t < (kRows + 2) / 3; ++t) third[t] = a + 3 * t * stride;
#pragma GCC unroll 2
  for (int64_t p = 0; p < k; p += 2) {
    __m512bh column[kNv];
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) column[j] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + j * 32));
    __builtin_prefetch(b + 16 * kPairNr);
    __builtin_prefetch(b + 17 * kPairNr);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512bh scalar = pair_at(third[r / 3] + r % 3 * stride + p);
#pragma GCC unroll 4
      for (int j = 0; j < kNv; ++j) sum[r][j] = _mm512_dpbf16_ps(sum[r][j], scalar, column[j]);
    }
    b += 2 * kPairNr;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) _mm512_storeu_ps(tile + r * kPairNr + j * kLanes, sum[r][j]);
  }
}

template <int kRows>
void multiply_up_to(const uint16_t* sliver, const uint16_t* panel, int64_t k, int64_t rows, float* tile,
                    int32_t accumulate) {
  if (rows == kRows) {
    multiply_rows<kRows>(sliver, panel, k, tile, accumulate);
  } else if constexpr (kRows > 1) {
    multiply_up_to<kRows - 1>(sliver, panel, k, rows, tile, accumulate);
  }
}

void multiply(const void* sliver, int32_t, const void* panel, int64_t k, int64_t rows, float* tile,
              int32_t accumulate) {
  multiply_up_to<kMr>(static_cast<const uint16_t*>(sliver), static_cast<const uint16_t*>(panel), k, rows, tile,
                      accumulate);
}

void store_c(const StoreArgs& args) { store_tile<kPairNr>(args); }

}  // namespace
}  // namespace INVAR_LEVEL_NAME

namespace level = INVAR_LEVEL_NAME;

const MatmulEngine kDotEngine = {"avx512_bf16",
                                 level::kMr,
                                 level::kPairNr,
                                 level::kStep,
                                 level::kBlock,
                                 sizeof(uint16_t),
                                 64,
                                 level::sliver_bytes,
                                 level::prepare_a,
                                 level::prepare_b,
                                 level::prepare_b,
                                 level::open_panel,
                                 level::multiply,
                                 level::store_c,
                                 0,
                                 nullptr,
                                 nullptr,
                                 nullptr};

}  // namespace invar::cpu
