// One step of fill_normal for kLanes draws, written once for every instruction set.
//
// Only + - * / and square roots, each rounded once: no fused operation, so every level gives the same bits. The series
// are Taylor's with as many terms as FP64 needs on the reduced ranges. Included by one file for each level, inside its
// own unnamed namespace; no standard-library templates, see codec_kernels.h.

typedef double F64 __attribute__((vector_size(8 * kLanes)));
typedef uint64_t U64 __attribute__((vector_size(8 * kLanes)));
typedef float F32 __attribute__((vector_size(4 * kLanes)));
typedef float Pairs __attribute__((vector_size(8 * kLanes)));

#define INVAR_INLINE inline __attribute__((always_inline))

INVAR_INLINE F64 as_f64(U64 value) { return reinterpret_cast<F64>(value); }
INVAR_INLINE U64 as_u64(F64 value) { return reinterpret_cast<U64>(value); }

// The lower 32 bits of each lane, multiplied.
INVAR_INLINE U64 multiply_32(U64 a, uint32_t b) {
#if defined(__AVX512F__)
  return reinterpret_cast<U64>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), _mm512_set1_epi64(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<U64>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), _mm256_set1_epi64x(b)));
#elif defined(__x86_64__)
  return reinterpret_cast<U64>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), _mm_set1_epi64x(b)));
#else
  return (a & 0xFFFFFFFFu) * b;
#endif
}

INVAR_INLINE F64 square_root(F64 value) {
#if defined(__AVX512F__)
  return _mm512_sqrt_pd(value);
#elif defined(__AVX2__)
  return _mm256_sqrt_pd(value);
#elif defined(__x86_64__)
  return _mm_sqrt_pd(value);
#else
  for (int i = 0; i < kLanes; ++i) value[i] = __builtin_sqrt(value[i]);
  return value;
#endif
}

// 64 random bits -> their upper 53 as a number below 2^53; both halves are exact.
INVAR_INLINE F64 upper_53(U64 word) {
  const U64 k = word >> 11;
  const F64 high = as_f64((k >> 32) | 0x4530000000000000u) - 0x1p84;
  return high + (as_f64((k & 0xFFFFFFFFu) | 0x4330000000000000u) - 0x1p52);
}

// Natural logarithm of a normal positive number: x = 2^e m with m in [0.7072, 1.4143), log m = 2 artanh((m-1) / (m+1)).
INVAR_INLINE F64 logarithm(F64 x) {
  constexpr uint64_t kLowest = 0x3fe6a10000000000u;  // bits of 0.7072
  const U64 shifted = as_u64(x) - kLowest + 0x3ff0000000000000u;
  const F64 exponent = as_f64((shifted >> 52) | 0x4330000000000000u) - (0x1p52 + 1023);
  const F64 m = as_f64((shifted & 0xFFFFFFFFFFFFFu) + kLowest);
  const F64 s = (m - 1.0) / (m + 1.0), z = s * s;
  F64 series = F64{} + 1.0 / 21;
  series = series * z + 1.0 / 19;
  series = series * z + 1.0 / 17;
  series = series * z + 1.0 / 15;
  series = series * z + 1.0 / 13;
  series = series * z + 1.0 / 11;
  series = series * z + 1.0 / 9;
  series = series * z + 1.0 / 7;
  series = series * z + 1.0 / 5;
  series = series * z + 1.0 / 3;
  // ln 2 in two parts: the first has 21 zero bits at its end, so that its product with an exponent is exact.
  constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  static_assert(kLn2High + kLn2Low == kLn2);
  const F64 twice = s + s;
  return exponent * kLn2High + (twice + (twice * z * series + exponent * kLn2Low));
}

// Cosine and sine of v full turns, v in [0, 1): quarter turns come off exactly.
INVAR_INLINE void turn(F64 v, F64* cosine, F64* sine) {
  const F64 shifted = v * 4.0 + 0x1.8p52;
  const U64 quarter = as_u64(shifted);
  const F64 x = (v - (shifted - 0x1.8p52) * 0.25) * 0x1.921fb54442d18p+2, z = x * x;
  F64 s = F64{} + 1.0 / 355687428096000;
  s = s * z - 1.0 / 1307674368000;
  s = s * z + 1.0 / 6227020800;
  s = s * z - 1.0 / 39916800;
  s = s * z + 1.0 / 362880;
  s = s * z - 1.0 / 5040;
  s = s * z + 1.0 / 120;
  s = s * z - 1.0 / 6;
  s = x + x * (s * z);
  F64 c = F64{} + 1.0 / 20922789888000;
  c = c * z - 1.0 / 87178291200;
  c = c * z + 1.0 / 479001600;
  c = c * z - 1.0 / 3628800;
  c = c * z + 1.0 / 40320;
  c = c * z - 1.0 / 720;
  c = c * z + 1.0 / 24;
  c = c * z - 0.5;
  c = c * z + 1.0;
  const U64 odd = U64{} - (quarter & 1);  // all ones where sine and cosine change places
  const U64 minus_sine = (quarter & 2) << 62, minus_cosine = ((quarter + 1) & 2) << 62;
  *sine = as_f64(((as_u64(c) & odd) | (as_u64(s) & ~odd)) ^ minus_sine);
  *cosine = as_f64(((as_u64(s) & odd) | (as_u64(c) & ~odd)) ^ minus_cosine);
}

INVAR_INLINE Pairs interleave(F32 even, F32 odd) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(__AVX2__)
  return __builtin_shufflevector(even, odd, 0, 4, 1, 5, 2, 6, 3, 7);
#else
  return __builtin_shufflevector(even, odd, 0, 2, 1, 3);
#endif
}

// Draws first, first + 1, ...
INVAR_INLINE Pairs draw_pairs(uint64_t seed, uint64_t stream, uint64_t first) {
  U64 counter;
  for (int i = 0; i < kLanes; ++i) counter[i] = first + static_cast<uint64_t>(i);
  constexpr uint64_t kLow = 0xFFFFFFFFu;
  // Each lane keeps a 32-bit word; the upper halves are products' and are masked where they would count.
  U64 c0 = counter & kLow, c1 = counter >> 32, c2 = U64{} + (stream & kLow), c3 = U64{} + (stream >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const U64 p0 = multiply_32(c0, 0xD2511F53u), p1 = multiply_32(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c1 = p1 & kLow;
    c3 = p0 & kLow;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const F64 u = (upper_53(c1 << 32 | c0) + 0.5) * 0x1p-53;
  const F64 v = upper_53(c3 << 32 | c2) * 0x1p-53;
  const F64 radius = square_root(-2.0 * logarithm(u));
  F64 cosine, sine;
  turn(v, &cosine, &sine);
  return interleave(__builtin_convertvector(radius * cosine, F32), __builtin_convertvector(radius * sine, F32));
}

INVAR_INLINE void normal_pairs(uint64_t seed, uint64_t stream, uint64_t first, int64_t draws, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= draws; i += kLanes) {
    const Pairs pairs = draw_pairs(seed, stream, first + static_cast<uint64_t>(i));
    memcpy(out + 2 * i, &pairs, sizeof pairs);
  }
  if (i == draws) return;
  const Pairs pairs = draw_pairs(seed, stream, first + static_cast<uint64_t>(i));
  memcpy(out + 2 * i, &pairs, static_cast<size_t>(draws - i) * 2 * sizeof(float));
}

#undef INVAR_INLINE
