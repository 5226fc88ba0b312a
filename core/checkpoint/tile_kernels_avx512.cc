// AVX-512 with BF16. A code becomes FP16 by a shift (exact, subnormals included), FP16 becomes FP32 in hardware,
// which no floating-point mode can flush; the power of two that the shift leaves behind is in the scale (CodeShape).
#include <immintrin.h>
#include <stdint.h>
#include <xxhash.h>

#include "core/checkpoint/tile_kernels.h"

namespace invar {
namespace {

void count(const uint8_t* codes, int64_t n, const CodeShape* shape, CodeCounts* counts) {
  const __m512i magnitude_mask = _mm512_set1_epi8(0x7F);
  const __m512i limit = _mm512_set1_epi8(static_cast<char>(shape->first_not_finite));
  const __m512i top = _mm512_set1_epi8(static_cast<char>(shape->largest));
  const __m512i minus_zero = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i largest = _mm512_setzero_si512();
  int64_t not_finite = 0, zero = 0, saturated = 0;
  for (int64_t i = 0; i < n; i += 64) {
    const __mmask64 valid = n - i >= 64 ? ~0ull : (1ull << (n - i)) - 1;
    const __m512i code = _mm512_maskz_loadu_epi8(valid, codes + i);
    const __m512i magnitude = _mm512_and_si512(code, magnitude_mask);
    const __mmask64 zeros = _mm512_mask_testn_epi8_mask(valid, magnitude, magnitude);
    __mmask64 nans;
    if (shape->minus_zero_is_nan) {
      nans = _mm512_mask_cmpeq_epi8_mask(valid, code, minus_zero);
      zero += static_cast<int64_t>(_mm_popcnt_u64(zeros & ~nans));
    } else {
      nans = _mm512_mask_cmpge_epu8_mask(valid, magnitude, limit);
      zero += static_cast<int64_t>(_mm_popcnt_u64(zeros));
    }
    not_finite += static_cast<int64_t>(_mm_popcnt_u64(nans));
    saturated += static_cast<int64_t>(_mm_popcnt_u64(_mm512_mask_cmpeq_epi8_mask(valid, magnitude, top)));
    largest = _mm512_max_epu8(largest, magnitude);
  }
  counts->not_finite += not_finite;
  counts->zero += zero;
  counts->saturated += saturated;
  alignas(64) uint8_t lanes[64];
  _mm512_store_si512(lanes, largest);
  for (int i = 0; i < 64; ++i) {
    if (lanes[i] > counts->largest) counts->largest = lanes[i];
  }
}

// 32 codes as FP16 bits.
template <int kHalfBits>
inline __m512i halves(__m256i codes) {
  const __m512i high = _mm512_slli_epi16(_mm512_cvtepu8_epi16(codes), 8);
  if (kHalfBits == 8) return high;
  const __m512i sign = _mm512_set1_epi16(static_cast<short>(0x8000));
  // sign ? high : high >> 1, bit by bit: the sign stays, the magnitude moves down by one.
  return _mm512_ternarylogic_epi32(sign, high, _mm512_srli_epi16(_mm512_andnot_si512(sign, high), 1), 0xCA);
}

struct ToBf16 {
  typedef uint16_t Out;
  static void store(uint16_t* out, __m512 low, __m512 high) {
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
  static void store_some(uint16_t* out, __mmask32 some, __m512 low, __m512 high) {
    _mm512_mask_storeu_epi16(out, some, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
};
struct ToF16 {
  typedef uint16_t Out;
  static __m512i pack(__m512 low, __m512 high) {
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm512_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)),
        _mm512_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), 1);
  }
  static void store(uint16_t* out, __m512 low, __m512 high) { _mm512_storeu_si512(out, pack(low, high)); }
  static void store_some(uint16_t* out, __mmask32 some, __m512 low, __m512 high) {
    _mm512_mask_storeu_epi16(out, some, pack(low, high));
  }
};
struct ToF32 {
  typedef float Out;
  static void store(float* out, __m512 low, __m512 high) {
    _mm512_storeu_ps(out, low);
    _mm512_storeu_ps(out + 16, high);
  }
  static void store_some(float* out, __mmask32 some, __m512 low, __m512 high) {
    _mm512_mask_storeu_ps(out, static_cast<__mmask16>(some), low);
    _mm512_mask_storeu_ps(out + 16, static_cast<__mmask16>(some >> 16), high);
  }
};

// n codes with one scale.
template <int kHalfBits, typename To>
inline void run(const uint8_t* codes, int64_t n, float scale, typename To::Out* out) {
  const __m512 factor = _mm512_set1_ps(scale);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512i half = halves<kHalfBits>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)));
    To::store(out + i, _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(half)), factor),
              _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)), factor));
  }
  if (i < n) {
    const __mmask32 some = (1u << (n - i)) - 1;
    const __m512i half = halves<kHalfBits>(_mm256_maskz_loadu_epi8(some, codes + i));
    To::store_some(out + i, some, _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(half)), factor),
                   _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)), factor));
  }
}

template <int kHalfBits, typename To>
inline void row(const uint8_t* codes, int64_t n, const float* scales, int64_t first, int64_t block,
                typename To::Out* out) {
  for (int64_t done = 0, part = first; done < n; done += part, part = block, ++scales) {
    if (part > n - done) part = n - done;
    run<kHalfBits, To>(codes + done, part, *scales, out + done);
  }
}

template <typename To>
void row_to(const uint8_t* codes, int64_t n, const float* scales, int64_t first, int64_t block, int half_bits,
            typename To::Out* out) {
  if (half_bits == 7) {
    row<7, To>(codes, n, scales, first, block, out);
  } else {
    row<8, To>(codes, n, scales, first, block, out);
  }
}

uint32_t largest16(const uint16_t* values, int64_t n) {
  const __m512i mask = _mm512_set1_epi16(0x7FFF);
  __m512i largest = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; i += 32) {
    const __mmask32 some = n - i >= 32 ? ~0u : (1u << (n - i)) - 1;
    largest = _mm512_max_epu16(largest, _mm512_and_si512(mask, _mm512_maskz_loadu_epi16(some, values + i)));
  }
  const __m512i low = _mm512_and_si512(largest, _mm512_set1_epi32(0xFFFF));
  return _mm512_reduce_max_epu32(_mm512_max_epu32(low, _mm512_srli_epi32(largest, 16)));
}

uint32_t largest32(const uint32_t* values, int64_t n) {
  const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i largest = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 some = n - i >= 16 ? static_cast<__mmask16>(~0u) : static_cast<__mmask16>((1u << (n - i)) - 1);
    largest = _mm512_max_epu32(largest, _mm512_and_si512(mask, _mm512_maskz_loadu_epi32(some, values + i)));
  }
  return _mm512_reduce_max_epu32(largest);
}

uint64_t hash(const void* bytes, int64_t n) { return XXH3_64bits(bytes, static_cast<size_t>(n)); }

}  // namespace

const TileKernels* tile_kernels_avx512() {
  static constexpr TileKernels kTable = {count,     row_to<ToBf16>, row_to<ToF16>, row_to<ToF32>,
                                         largest16, largest32,      hash};
  return &kTable;
}

}  // namespace invar
