// exp, sigmoid and tanh of vectors. exp is within 1 ulp (math_test measures every exponent), the others within
// 4 ulp, all with the right limits: exp(-inf) = 0, exp(inf) = inf, NaN stays NaN.
// Method: x = n ln 2 + r with |r| <= ln 2 / 2, e^r = 1 + r + r^2 P(r), P of degree 4 fitted by weighted least
// squares at Chebyshev nodes; its own relative error is below 2^-27.
#pragma once

#include "core/device/cpu/simd/vector.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

INVAR_INLINE F32 exp(F32 x) {
  // Beyond these the result is 0 or infinite anyway. Comparisons are false for NaN: it passes through.
  x = x > set(89.0f) ? set(89.0f) : x;
  x = x < set(-104.0f) ? set(-104.0f) : x;
  const F32 n = round_to_integer(x * 0x1.715476p+0f);
  // ln 2 in two parts, the first short enough that n times it is exact.
  F32 r = fma(n, set(-0x1.62e4p-1f), x);
  r = fma(n, set(-0x1.7f7d1cp-20f), r);
  F32 p = set(0.00137513821425f);
  p = fma(p, r, set(0.0083689234272f));
  p = fma(p, r, set(0.0416695342249f));
  p = fma(p, r, set(0.166665184011f));
  p = fma(p, r, set(0.499999885884f));
  p = fma(p * r, r, r) + 1.0f;
  return scale_by_power(p, n);
}

// 2^f for |f| <= 1/2 with a relative error of 2^-18.
INVAR_INLINE F32 exp2_fraction(F32 f) {
  F32 p = set(0.00960039471421f);
  p = fma(p, f, set(0.0559169101757f));
  p = fma(p, f, set(0.240237185503f));
  p = fma(p, f, set(0.69312199286f));
  return fma(p, f, set(1.0f));
}

// 2^x for x <= 0 with a relative error of 2^-18, a small part of the BF16 rounding (2^-9) that softmax weights get
// next. Below -126 the result is 0.
INVAR_INLINE F32 exp2_short(F32 x) {
  const F32 clamped = max(x, set(-127.0f));
  const F32 n = round_to_integer(clamped);
  const F32 p = exp2_fraction(clamped - n);
#if defined(__AVX512F__)
  const F32 power = _mm512_scalef_ps(p, n);
#else
  const F32 power = p * reinterpret_cast<F32>((__builtin_convertvector(n, I32) + 127) << 23);
#endif
  return x < set(-126.0f) ? zero() : power;
}

// 1 / (1 + e^-x).
INVAR_INLINE F32 sigmoid(F32 x) {
  // Keeps 1 + e^-x below 2^126 (sigmoid(-87) is 1.6e-38) and e^-x a normal number: subnormal ones are slow. The
  // constants come first, so that NaN passes through.
  const F32 negated = min(set(87.0f), max(set(-87.0f), -x));
  return reciprocal(exp(negated) + 1.0f);
}

// The same with a relative error of 2^-17, for results that are rounded to BF16.
INVAR_INLINE F32 sigmoid_short(F32 x) {
  const F32 scaled = x * -0x1.715476p+0f;
  // e^-x = 2^n 2^f
  const F32 bounded = min(set(126.0f), max(set(-126.0f), scaled));
  const F32 n = round_to_integer(bounded);
  return reciprocal(scale_by_power(exp2_fraction(bounded - n), n) + 1.0f);
}

INVAR_INLINE F32 tanh(F32 x) {
  const F32 magnitude = from_bits(bits(x) & 0x7fffffff);
  const U32 sign = bits(x) & 0x80000000u;
  // Small arguments by the series: x - x^3/3 + ..., where the quotient would cancel.
  const F32 square = x * x;
  F32 series = set(-0.00886323f);
  series = fma(series, square, set(0.02186949f));
  series = fma(series, square, set(-0.05396825f));
  series = fma(series, square, set(0.13333333f));
  series = fma(series, square, set(-0.33333333f));
  series = fma(series * square, x, x);
  // 1 - 2 / (e^2|x| + 1); beyond 10 the result is 1 in FP32.
  const F32 bounded = magnitude > set(10.0f) ? set(10.0f) : magnitude;
  const F32 quotient = fnma(set(2.0f), reciprocal(exp(bounded + bounded) + 1.0f), set(1.0f));
  return magnitude < set(0.3f) ? series : from_bits(bits(quotient) | sign);
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
