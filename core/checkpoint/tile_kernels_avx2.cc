// AVX2 with F16C: the same steps as the AVX-512 file, eight elements at a time, BF16 rounded by integers.
#include <immintrin.h>
#include <stdint.h>
#include <xxhash.h>

#include "core/checkpoint/tile_kernels.h"

namespace invar {
namespace {

void count_tail(const uint8_t* codes, int64_t n, const CodeShape* shape, CodeCounts* counts) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = codes[i] & 0x7Fu;
    const bool nan = shape->minus_zero_is_nan ? codes[i] == 0x80 : magnitude >= shape->first_not_finite;
    counts->not_finite += nan;
    counts->zero += magnitude == 0 && !nan;
    counts->saturated += magnitude == shape->largest;
    if (magnitude > counts->largest) counts->largest = magnitude;
  }
}

inline int64_t ones(__m256i bytes) { return __builtin_popcount(static_cast<unsigned>(_mm256_movemask_epi8(bytes))); }

void count(const uint8_t* codes, int64_t n, const CodeShape* shape, CodeCounts* counts) {
  const __m256i magnitude_mask = _mm256_set1_epi8(0x7F), zero_code = _mm256_setzero_si256();
  // Magnitudes are at most 0x7F, so signed comparison serves; 0x80 as a limit means none.
  const __m256i below_limit = _mm256_set1_epi8(static_cast<char>(shape->first_not_finite - 1));
  const __m256i top = _mm256_set1_epi8(static_cast<char>(shape->largest));
  const __m256i minus_zero = _mm256_set1_epi8(static_cast<char>(0x80));
  __m256i largest = _mm256_setzero_si256();
  int64_t i = 0, not_finite = 0, zero = 0, saturated = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i code = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
    const __m256i magnitude = _mm256_and_si256(code, magnitude_mask);
    const __m256i nans =
        shape->minus_zero_is_nan ? _mm256_cmpeq_epi8(code, minus_zero) : _mm256_cmpgt_epi8(magnitude, below_limit);
    not_finite += ones(nans);
    zero += ones(_mm256_andnot_si256(nans, _mm256_cmpeq_epi8(magnitude, zero_code)));
    saturated += ones(_mm256_cmpeq_epi8(magnitude, top));
    largest = _mm256_max_epu8(largest, magnitude);
  }
  counts->not_finite += not_finite;
  counts->zero += zero;
  counts->saturated += saturated;
  alignas(32) uint8_t lanes[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  for (int lane = 0; lane < 32; ++lane) {
    if (lanes[lane] > counts->largest) counts->largest = lanes[lane];
  }
  count_tail(codes + i, n - i, shape, counts);
}

template <int kHalfBits>
inline __m256 values(const uint8_t* codes) {
  const __m128i high = _mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes))), 8);
  if (kHalfBits == 8) return _mm256_cvtph_ps(high);
  const __m128i sign = _mm_set1_epi16(static_cast<short>(0x8000));
  return _mm256_cvtph_ps(_mm_or_si128(_mm_and_si128(high, sign), _mm_srli_epi16(_mm_andnot_si128(sign, high), 1)));
}

struct ToBf16 {
  typedef uint16_t Out;
  static void store(uint16_t* out, __m256 product) {
    const __m256i bits = _mm256_castps_si256(product);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7FFF)), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(packed));
  }
};
struct ToF16 {
  typedef uint16_t Out;
  static void store(uint16_t* out, __m256 product) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtps_ph(product, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};
struct ToF32 {
  typedef float Out;
  static void store(float* out, __m256 product) { _mm256_storeu_ps(out, product); }
};

template <int kHalfBits, typename To>
inline void run(const uint8_t* codes, int64_t n, float scale, typename To::Out* out) {
  const __m256 factor = _mm256_set1_ps(scale);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) To::store(out + i, _mm256_mul_ps(values<kHalfBits>(codes + i), factor));
  if (i < n) {
    uint8_t some[8] = {};
    typename To::Out results[8];
    for (int64_t k = 0; k < n - i; ++k) some[k] = codes[i + k];
    To::store(results, _mm256_mul_ps(values<kHalfBits>(some), factor));
    for (int64_t k = 0; k < n - i; ++k) out[i + k] = results[k];
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
  const __m256i mask = _mm256_set1_epi16(0x7FFF);
  __m256i largest = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i part = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i));
    largest = _mm256_max_epu16(largest, _mm256_and_si256(mask, part));
  }
  alignas(32) uint16_t lanes[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  uint32_t best = 0;
  for (int lane = 0; lane < 16; ++lane) best = lanes[lane] > best ? lanes[lane] : best;
  for (; i < n; ++i) best = (values[i] & 0x7FFFu) > best ? values[i] & 0x7FFFu : best;
  return best;
}

uint32_t largest32(const uint32_t* values, int64_t n) {
  const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i largest = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i part = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(mask, part));
  }
  alignas(32) uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  uint32_t best = 0;
  for (int lane = 0; lane < 8; ++lane) best = lanes[lane] > best ? lanes[lane] : best;
  for (; i < n; ++i) best = (values[i] & 0x7FFFFFFFu) > best ? values[i] & 0x7FFFFFFFu : best;
  return best;
}

uint64_t hash(const void* bytes, int64_t n) { return XXH3_64bits(bytes, static_cast<size_t>(n)); }

}  // namespace

const TileKernels* tile_kernels_avx2() {
  static constexpr TileKernels kTable = {count,     row_to<ToBf16>, row_to<ToF16>, row_to<ToF32>,
                                         largest16, largest32,      hash};
  return &kTable;
}

}  // namespace invar
