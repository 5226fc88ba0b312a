#include "core/device/cpu/bench/streams.h"

#include "core/numerics/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define INVAR_TARGET(name) __attribute__((target(name)))
#endif

namespace invar::cpu {
namespace {

#if defined(__x86_64__)

INVAR_TARGET("avx512f") void triad512(float* a, const float* b, const float* c, int64_t count) {
  const __m512 three = _mm512_set1_ps(3);
  for (int64_t i = 0; i < count; i += 16) {
    _mm512_stream_ps(a + i, _mm512_fmadd_ps(three, _mm512_load_ps(c + i), _mm512_load_ps(b + i)));
  }
  _mm_sfence();
}

INVAR_TARGET("avx512f") float read512(const float* a, int64_t count) {
  __m512 s0 = _mm512_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i < count; i += 64) {
    s0 = _mm512_add_ps(s0, _mm512_load_ps(a + i));
    s1 = _mm512_add_ps(s1, _mm512_load_ps(a + i + 16));
    s2 = _mm512_add_ps(s2, _mm512_load_ps(a + i + 32));
    s3 = _mm512_add_ps(s3, _mm512_load_ps(a + i + 48));
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(s0, s1), _mm512_add_ps(s2, s3)));
}

INVAR_TARGET("avx512f") void write512(float* a, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) _mm512_stream_ps(a + i, _mm512_set1_ps(3));
  _mm_sfence();
}

// SSE2 is part of x86-64; 16 bytes at a time already reach memory's limit on processors of the AVX2 kind.
void triad128(float* a, const float* b, const float* c, int64_t count) {
  const __m128 three = _mm_set1_ps(3);
  for (int64_t i = 0; i < count; i += 4) {
    _mm_stream_ps(a + i, _mm_add_ps(_mm_mul_ps(three, _mm_load_ps(c + i)), _mm_load_ps(b + i)));
  }
  _mm_sfence();
}

float read128(const float* a, int64_t count) {
  __m128 s0 = _mm_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i < count; i += 16) {
    s0 = _mm_add_ps(s0, _mm_load_ps(a + i));
    s1 = _mm_add_ps(s1, _mm_load_ps(a + i + 4));
    s2 = _mm_add_ps(s2, _mm_load_ps(a + i + 8));
    s3 = _mm_add_ps(s3, _mm_load_ps(a + i + 12));
  }
  const __m128 sum = _mm_add_ps(_mm_add_ps(s0, s1), _mm_add_ps(s2, s3));
  return sum[0] + sum[1] + sum[2] + sum[3];
}

void write128(float* a, int64_t count) {
  for (int64_t i = 0; i < count; i += 4) _mm_stream_ps(a + i, _mm_set1_ps(3));
  _mm_sfence();
}

#endif

}  // namespace

void stream_triad(float* a, const float* b, const float* c, int64_t count) {
#if defined(__x86_64__)
  return cpu_features().avx512 ? triad512(a, b, c, count) : triad128(a, b, c, count);
#else
  for (int64_t i = 0; i < count; ++i) a[i] = b[i] + 3 * c[i];
#endif
}

float stream_read(const float* a, int64_t count) {
#if defined(__x86_64__)
  return cpu_features().avx512 ? read512(a, count) : read128(a, count);
#else
  float sums[kStreamUnit] = {}, sum = 0;
  for (int64_t i = 0; i < count; i += kStreamUnit) {
    for (int64_t k = 0; k < kStreamUnit; ++k) sums[k] += a[i + k];
  }
  for (float part : sums) sum += part;
  return sum;
#endif
}

void stream_write(float* a, int64_t count) {
#if defined(__x86_64__)
  return cpu_features().avx512 ? write512(a, count) : write128(a, count);
#else
  for (int64_t i = 0; i < count; ++i) a[i] = 3;
#endif
}

}  // namespace invar::cpu
