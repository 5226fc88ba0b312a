// Vectors of the instruction set that the including file is compiled for: the one place that knows lanes.
//
//   namespace invar::cpu::INVAR_LEVEL_NAME {
//   F32 sum = zero();
//   for (int64_t i = 0; i < count; i += kLanes) sum = fma(load(x + i), load(y + i), sum);
//
// A kernel source is compiled once a level (simd/levels.bzl sets INVAR_LEVEL_NAME: portable, avx2, avx512,
// avx512_bf16) and everything here lives in the level's namespace, so that no wide copy of a function can be
// linked into a narrow caller. For the same reason no standard-library template is used.
//
// Arithmetic is the compilers' vector extension (+ - * / < & ?: on F32, I32, U32); functions below are
// what it lacks. Loads and stores take Full, or Part{n}: only the first `n` elements are touched, the rest read as 0.
// for_vectors runs a body over a range in Full steps and one Part:
//
//   for_vectors(count, [&](int64_t i, auto part) { store(out + i, load(a + i, part) + load(b + i, part), part); });
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace invar::cpu::INVAR_LEVEL_NAME {

#if defined(__AVX512F__)
constexpr int64_t kLanes = 16;
#elif defined(__AVX2__)
constexpr int64_t kLanes = 8;
#else
constexpr int64_t kLanes = 4;
#endif

// may_alias and the alignment of one element: a vector may be read from anywhere.
#define INVAR_VECTOR(type, count) __attribute__((vector_size(sizeof(type) * count)))
typedef float F32 INVAR_VECTOR(float, kLanes);
typedef int32_t I32 INVAR_VECTOR(int32_t, kLanes);
typedef uint32_t U32 INVAR_VECTOR(uint32_t, kLanes);
typedef uint16_t U16 INVAR_VECTOR(uint16_t, kLanes);
typedef uint8_t U8 INVAR_VECTOR(uint8_t, kLanes);
typedef double F64 INVAR_VECTOR(double, kLanes / 2);  // half as many lanes: one register
typedef float F32Half INVAR_VECTOR(float, kLanes / 2);
#undef INVAR_VECTOR

#define INVAR_INLINE inline __attribute__((always_inline))

struct Full {
  static constexpr int64_t n = kLanes;
};
struct Part {
  int64_t n;  // 0 < n < kLanes
};

// x - 0 is x for every x, and compiles to a broadcast; 0 + x would be an addition (it turns -0 into 0).
INVAR_INLINE F32 set(float value) { return value - F32{}; }
INVAR_INLINE U32 set_u32(uint32_t value) { return U32{} + value; }
INVAR_INLINE F32 zero() { return F32{}; }
INVAR_INLINE U32 bits(F32 value) { return reinterpret_cast<U32>(value); }
INVAR_INLINE F32 from_bits(U32 value) { return reinterpret_cast<F32>(value); }

// memcpy of a constant size is one unaligned move.
INVAR_INLINE F32 load(const float* from) {
  F32 value;
  memcpy(&value, from, sizeof value);
  return value;
}
INVAR_INLINE void store(float* to, F32 value) { memcpy(to, &value, sizeof value); }

INVAR_INLINE F32 load(const float* from, Part part) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << part.n) - 1), from);
#else
  F32 value = zero();
  memcpy(&value, from, static_cast<size_t>(part.n) * sizeof(float));
  return value;
#endif
}
INVAR_INLINE void store(float* to, F32 value, Part part) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << part.n) - 1), value);
#else
  memcpy(to, &value, static_cast<size_t>(part.n) * sizeof(float));
#endif
}

// BF16 is the upper half of FP32.
INVAR_INLINE F32 widen(U16 value) { return from_bits(__builtin_convertvector(value, U32) << 16); }
// To nearest even; NaN stays a quiet NaN.
INVAR_INLINE U16 narrow(F32 value) {
  const U32 u = bits(value);
  const U32 rounded = u + 0x7fff + ((u >> 16) & 1);
  const U32 chosen = value == value ? rounded : u | 0x400000;
  return __builtin_convertvector(chosen >> 16, U16);
}

INVAR_INLINE F32 load(const uint16_t* from) {
  U16 value;
  memcpy(&value, from, sizeof value);
  return widen(value);
}
INVAR_INLINE void store(uint16_t* to, F32 value) {
  const U16 narrowed = narrow(value);
  memcpy(to, &narrowed, sizeof narrowed);
}
INVAR_INLINE F32 load(const uint16_t* from, Part part) {
#if defined(__AVX512F__)
  const __m256i value = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << part.n) - 1), from);
  return widen(reinterpret_cast<U16>(value));
#else
  U16 value{};
  memcpy(&value, from, static_cast<size_t>(part.n) * sizeof(uint16_t));
  return widen(value);
#endif
}
INVAR_INLINE void store_narrow(uint16_t* to, U16 narrowed, Full) { memcpy(to, &narrowed, sizeof narrowed); }
INVAR_INLINE void store_narrow(uint16_t* to, U16 narrowed, Part part) {
#if defined(__AVX512F__)
  _mm256_mask_storeu_epi16(to, static_cast<__mmask16>((1u << part.n) - 1), reinterpret_cast<__m256i>(narrowed));
#else
  memcpy(to, &narrowed, static_cast<size_t>(part.n) * sizeof(uint16_t));
#endif
}

INVAR_INLINE void store(uint16_t* to, F32 value, Part part) { store_narrow(to, narrow(value), part); }
INVAR_INLINE F32 load(const float* from, Full) { return load(from); }
INVAR_INLINE F32 load(const uint16_t* from, Full) { return load(from); }
INVAR_INLINE void store(float* to, F32 value, Full) { store(to, value); }
INVAR_INLINE void store(uint16_t* to, F32 value, Full) { store(to, value); }

// Asks for the cache line `kPrefetchBytes` behind `at`: the hardware's prefetchers stop at page ends, and a single
// stream then waits for memory once a page. An address behind the end is harmless.
constexpr uintptr_t kPrefetchBytes = 4096;
INVAR_INLINE void prefetch_behind(const void* at) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(at) + kPrefetchBytes));
}

// For activations: the same rounding, except that the BF16 conversion instruction takes subnormal numbers as zero.
INVAR_INLINE U16 narrow_act(F32 value) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<U16>(_mm512_cvtneps_pbh(value));
#else
  return narrow(value);
#endif
}
template <typename Extent>
INVAR_INLINE void store_act(uint16_t* to, F32 value, Extent extent) {
  store_narrow(to, narrow_act(value), extent);
}
template <typename Extent>
INVAR_INLINE void store_act(float* to, F32 value, Extent extent) {
  store(to, value, extent);
}

template <typename Body>
INVAR_INLINE void for_vectors(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, Full{});
  if (i < count) body(i, Part{count - i});
}

// a * b + c, one rounding where the instruction set has it.
INVAR_INLINE F32 fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
// c - a * b.
INVAR_INLINE F32 fnma(F32 a, F32 b, F32 c) { return fma(-a, b, c); }
INVAR_INLINE F64 fma(F64 a, F64 b, F64 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

INVAR_INLINE F32 max(F32 a, F32 b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
INVAR_INLINE F32 min(F32 a, F32 b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}
INVAR_INLINE U32 max(U32 a, U32 b) {
#if defined(__AVX512F__)
  return reinterpret_cast<U32>(_mm512_max_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<U32>(_mm256_max_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return a > b ? a : b;
#endif
}

INVAR_INLINE F32 sqrt(F32 value) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(value);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(value);
#else
  F32 root;
  for (int64_t i = 0; i < kLanes; ++i) root[i] = __builtin_sqrtf(value[i]);
  return root;
#endif
}

// 1 / value within 1 ulp; value must be normal and below 2^126.
INVAR_INLINE F32 reciprocal(F32 value) {
#if defined(__AVX512F__)
  const F32 guess = _mm512_rcp14_ps(value);
  return fma(guess, fnma(value, guess, set(1)), guess);  // 2^-14 squared is below half a ulp
#else
  return 1.0f / value;
#endif
}

// To the nearest integer, ties to even; |value| < 2^22.
INVAR_INLINE F32 round_to_integer(F32 value) {
#if defined(__AVX512F__)
  return _mm512_roundscale_ps(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return _mm256_round_ps(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const F32 magic = set(0x1.8p23f);
  return (value + magic) - magic;
#endif
}

// value * 2^exponent for integers -252 <= exponent <= 254.
INVAR_INLINE F32 scale_by_power(F32 value, F32 exponent) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(value, exponent);
#else
  const I32 whole = __builtin_convertvector(exponent, I32);
  const I32 half = whole >> 1;
  const F32 first = reinterpret_cast<F32>((half + 127) << 23);
  const F32 second = reinterpret_cast<F32>((whole - half + 127) << 23);
  return value * first * second;
#endif
}

// The lanes' sum: halves are folded on halves, in the same order everywhere.
INVAR_INLINE float add_lanes(F32 value) {
#if defined(__AVX512F__)
  const __m256 eight = _mm512_castps512_ps256(value) + _mm512_extractf32x8_ps(value, 1);
  const __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
  const __m128 two = four + _mm_movehl_ps(four, four);
  return two[0] + two[1];
#else
  float lanes[kLanes];
  memcpy(lanes, &value, sizeof lanes);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
#endif
}
INVAR_INLINE double add_lanes(F64 value) {
  double lanes[kLanes / 2];
  memcpy(lanes, &value, sizeof lanes);
  for (int64_t half = kLanes / 4; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
INVAR_INLINE float max_lanes(F32 value) {
#if defined(__AVX512F__)
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(value), _mm512_extractf32x8_ps(value, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return two[0] > two[1] ? two[0] : two[1];
#else
  float largest = value[0];
  for (int64_t i = 1; i < kLanes; ++i) largest = value[i] > largest ? value[i] : largest;
  return largest;
#endif
}
INVAR_INLINE uint32_t max_lanes(U32 value) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < kLanes; ++i) largest = value[i] > largest ? value[i] : largest;
  return largest;
}

// The lower and upper lanes in FP64.
INVAR_INLINE F64 lower_f64(F32 value) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(_mm512_castps512_ps256(value));
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(_mm256_castps256_ps128(value));
#else
  return F64{value[0], value[1]};
#endif
}
INVAR_INLINE F64 upper_f64(F32 value) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(value, 1));
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(_mm256_extractf128_ps(value, 1));
#else
  return F64{value[2], value[3]};
#endif
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
