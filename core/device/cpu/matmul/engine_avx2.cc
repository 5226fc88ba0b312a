// The wide engine for AVX2 and FMA: 6 x 16 micro-tiles in twelve of the sixteen registers.
#include <immintrin.h>

#include "core/device/cpu/matmul/engine.h"

namespace invar::cpu {
namespace {

struct V {
  static constexpr int kWidth = 8;
  __m256 v;

  static V load(const float* from) { return {_mm256_loadu_ps(from)}; }
  void store(float* to) const { _mm256_storeu_ps(to, v); }
  static V zero() { return {_mm256_setzero_ps()}; }
  static V set1(float x) { return {_mm256_set1_ps(x)}; }
  static V multiply(V a, V b) { return {_mm256_mul_ps(a.v, b.v)}; }
  static V plus(V a, V b) { return {_mm256_add_ps(a.v, b.v)}; }
  static V multiply_add(V a, V b, V c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  static V widen(const uint16_t* from) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
  }
  void narrow(uint16_t* to) const {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i half = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
  }
  static void transpose(V (&rows)[kWidth]) {
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
      a[i] = _mm256_unpacklo_ps(rows[i].v, rows[i + 1].v);
      a[i + 1] = _mm256_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
    for (int i = 0; i < 8; i += 4) {
      b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
      b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
      b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
      b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      rows[i].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
      rows[i + 4].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
  }
  struct Doubles {
    __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
    void add_square(V x) {
      const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(x.v));
      const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1));
      low = _mm256_fmadd_pd(a, a, low);
      high = _mm256_fmadd_pd(b, b, high);
    }
    double total() const {
      double lanes[4];
      _mm256_storeu_pd(lanes, _mm256_add_pd(low, high));
      return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    }
  };
};

constexpr int kMr = 6;
constexpr int kNv = 2;

#include "core/device/cpu/matmul/wide_engine.inc"
//
#include "core/device/cpu/matmul/store_tile.inc"

}  // namespace

const MatmulEngine kAvx2Engine = {"avx2",    kMr,        kNr,        1,        768,   4,       sliver_bytes, prepare_a,
                                  prepare_b, pack_panel, open_panel, multiply, store, nullptr, nullptr};

}  // namespace invar::cpu
