// Codecs for AVX-512 (F, BW, DQ, VL), included by codec_avx512.cc and codec_avx512_bf16.cc: the latter
// defines INVAR_CODEC_BF16 and rounds FP8 products with the BF16 instruction, which flushes subnormals and
// is therefore used only where products are normal. No standard-library templates here: see
// codec_kernels.h. How FP8 decodes by way of FP16 is told in codec_avx2.cc.
#include <immintrin.h>

#include "core/numerics/codec_kernels.h"

namespace invar {
namespace {

constexpr int64_t kChunk = 64;

inline __m512i magnitude_of(__m512i codes) { return _mm512_and_si512(codes, _mm512_set1_epi8(0x7F)); }

template <int kIndex>
inline __mmask64 nan_mask(__m512i codes) {
  if constexpr (kIndex == kIndexE4M3FN) {
    return _mm512_cmpeq_epi8_mask(magnitude_of(codes), _mm512_set1_epi8(0x7F));
  } else if constexpr (kIndex == kIndexE5M2) {
    return _mm512_cmpgt_epi8_mask(magnitude_of(codes), _mm512_set1_epi8(0x7C));
  } else {
    return _mm512_cmpeq_epi8_mask(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
  }
}

// What the decoded numbers below are still to be multiplied by.
template <int kIndex>
constexpr float factor_of() {
  return kIndex == kIndexE4M3FN ? 256.0f : kIndex == kIndexE4M3FNUZ ? 128.0f : 1.0f;
}

inline __m512 decode16_e5m2fnuz(__m128i codes) {
  const __m512i wide = _mm512_cvtepu8_epi32(codes);
  const __m512i magnitude = _mm512_and_si512(wide, _mm512_set1_epi32(0x7F));
  const __m512i sign = _mm512_slli_epi32(_mm512_srli_epi32(wide, 7), 31);
  const __m512i bits = _mm512_add_epi32(_mm512_slli_epi32(magnitude, 21), _mm512_set1_epi32(111 << 23));
  // A subnormal gets a hidden bit and loses its value again.
  const __mmask16 is_subnormal = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(4));
  const __m512 lifted =
      _mm512_castsi512_ps(_mm512_mask_add_epi32(bits, is_subnormal, bits, _mm512_set1_epi32(1 << 23)));
  const __m512 value = _mm512_mask_sub_ps(lifted, is_subnormal, lifted, _mm512_set1_ps(0x1p-15f));
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(value), sign));
}

// 32 codes, none of them NaN, to FP32 / factor_of.
template <int kIndex>
inline void decode32(__m256i codes, __m512* low, __m512* high) {
  if constexpr (kIndex == kIndexE5M2FNUZ) {
    *low = decode16_e5m2fnuz(_mm256_castsi256_si128(codes));
    *high = decode16_e5m2fnuz(_mm256_extracti128_si256(codes, 1));
    return;
  }
  const __m512i upper = _mm512_slli_epi16(_mm512_cvtepu8_epi16(codes), 8);
  __m512i halves = upper;
  if constexpr (kIndex != kIndexE5M2) {
    const __m512i magnitude = _mm512_and_si512(_mm512_srli_epi16(upper, 1), _mm512_set1_epi16(0x3F80));
    // magnitude | (upper & sign)
    halves = _mm512_ternarylogic_epi32(magnitude, upper, _mm512_set1_epi16(static_cast<int16_t>(0x8000)), 0xF8);
  }
  *low = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
  *high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
}

// Nearest-even upper halves in the low 16 bits of each lane; numbers, infinities and zeros only.
inline __m512i round_to_upper(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
}

// The low words of 32 lanes, in order.
inline __m512i pack_words(__m512i low, __m512i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(low)), _mm512_cvtepi32_epi16(high), 1);
}

inline __m512i round_products(__m512 low, __m512 high) {
#ifdef INVAR_CODEC_BF16
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
#else
  return pack_words(round_to_upper(low), round_to_upper(high));
#endif
}

template <int kIndex, bool kStreaming>
int64_t fp8_to_bf16_loop(const uint8_t* in, uint16_t* out, int64_t count, float scale) {
  const __m512 factor = _mm512_set1_ps(scale * factor_of<kIndex>());
  const auto convert32 = [&](__m256i codes, void* to) {
    __m512 low, high;
    decode32<kIndex>(codes, &low, &high);
    const __m512i words = round_products(_mm512_mul_ps(low, factor), _mm512_mul_ps(high, factor));
    if constexpr (kStreaming) {
      _mm512_stream_si512(static_cast<__m512i*>(to), words);
    } else {
      _mm512_storeu_si512(to, words);
    }
  };
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    const __m512i codes = _mm512_loadu_si512(in + i);
    if (__builtin_expect(nan_mask<kIndex>(codes) != 0, 0)) {
      portable_fp8_to_bf16(kIndex, in + i, out + i, kChunk, scale);
      continue;
    }
    convert32(_mm512_castsi512_si256(codes), out + i);
    convert32(_mm512_extracti64x4_epi64(codes, 1), out + i + 32);
  }
  if (i + kChunk / 2 <= count) {  // blocks of 32 need no padding
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    if (__builtin_expect(nan_mask<kIndex>(_mm512_zextsi256_si512(codes)) != 0, 0)) {
      portable_fp8_to_bf16(kIndex, in + i, out + i, kChunk / 2, scale);
    } else {
      convert32(codes, out + i);
    }
    i += kChunk / 2;
  }
  return i;
}

template <int kIndex>
int64_t fp8_to_bf16(const uint8_t* in, uint16_t* out, int64_t count, float scale) {
  return fp8_to_bf16_loop<kIndex, false>(in, out, count, scale);
}

template <int kIndex>
int64_t fp8_to_bf16_streaming(const uint8_t* in, uint16_t* out, int64_t count, float scale) {
  return fp8_to_bf16_loop<kIndex, true>(in, out, count, scale);
}

template <int kIndex>
int64_t fp8_to_f32(const uint8_t* in, float* out, int64_t count, float scale) {
  const __m512 exact = _mm512_set1_ps(factor_of<kIndex>()), factor = _mm512_set1_ps(scale);
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    const __m512i codes = _mm512_loadu_si512(in + i);
    if (__builtin_expect(nan_mask<kIndex>(codes) != 0, 0)) {
      portable_fp8_to_f32(kIndex, in + i, out + i, kChunk, scale);
      continue;
    }
    __m512 values[4];
    decode32<kIndex>(_mm512_castsi512_si256(codes), &values[0], &values[1]);
    decode32<kIndex>(_mm512_extracti64x4_epi64(codes, 1), &values[2], &values[3]);
    for (int part = 0; part < 4; ++part) {
      _mm512_storeu_ps(out + i + 16 * part, _mm512_mul_ps(_mm512_mul_ps(values[part], exact), factor));
    }
  }
  return i;
}

template <int kIndex>
int64_t fp8_to_f16(const uint8_t* in, uint16_t* out, int64_t count, float scale) {
  const __m512 exact = _mm512_set1_ps(factor_of<kIndex>()), factor = _mm512_set1_ps(scale);
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    const __m512i codes = _mm512_loadu_si512(in + i);
    if (__builtin_expect(nan_mask<kIndex>(codes) != 0, 0)) {
      portable_fp8_to_f16(kIndex, in + i, out + i, kChunk, scale);
      continue;
    }
    __m512 values[4];
    decode32<kIndex>(_mm512_castsi512_si256(codes), &values[0], &values[1]);
    decode32<kIndex>(_mm512_extracti64x4_epi64(codes, 1), &values[2], &values[3]);
    for (int part = 0; part < 4; ++part) {
      const __m512 product = _mm512_mul_ps(_mm512_mul_ps(values[part], exact), factor);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i + 16 * part),
                          _mm512_cvtps_ph(product, _MM_FROUND_TO_NEAREST_INT));
    }
  }
  return i;
}

// Constants of an encoder: how far the exponent moves, the largest value, where subnormals begin.
template <int kIndex>
struct Encoder {
  static constexpr int kMantissa = kIndex == kIndexE4M3FN || kIndex == kIndexE4M3FNUZ ? 3 : 2;
  static constexpr int kBias = kIndex == kIndexE4M3FN     ? 7
                               : kIndex == kIndexE4M3FNUZ ? 8
                               : kIndex == kIndexE5M2     ? 15
                                                          : 16;
  static constexpr bool kFnuz = kIndex >= kIndexE4M3FNUZ;
  static constexpr float kMax = kIndex == kIndexE4M3FN ? 448.0f : kIndex == kIndexE4M3FNUZ ? 240.0f : 57344.0f;
  static constexpr int kNan = kFnuz ? 0x80 : kIndex == kIndexE4M3FN ? 0x7F : 0x7E;
  static constexpr int kShift = 23 - kMantissa;
  static constexpr int kMinNormal = (128 - kBias) << 23;  // FP32 bits of 2^(1 - bias)
  // FP32 bits of the number whose last bit weighs as much as the smallest subnormal.
  static constexpr int kMagic = (127 + 1 - kBias - kMantissa + 23) << 23;
};

template <int kIndex>
inline __m128i encode16(__m512 values) {
  using E = Encoder<kIndex>;
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i raw = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
  const __mmask16 is_nan = _mm512_cmpgt_epi32_mask(raw, _mm512_set1_epi32(0x7F800000));
  // As integers magnitudes keep their order, and saturation comes before rounding.
  const __m512i magnitude = _mm512_min_epi32(raw, _mm512_castps_si512(_mm512_set1_ps(E::kMax)));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, E::kShift), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_add_epi32(magnitude, _mm512_add_epi32(odd, _mm512_set1_epi32((1 << (E::kShift - 1)) - 1)));
  __m512i codes =
      _mm512_sub_epi32(_mm512_srli_epi32(rounded, E::kShift), _mm512_set1_epi32((127 - E::kBias) << E::kMantissa));
  // The adder rounds a subnormal: the sum's last bit is the smallest subnormal.
  const __m512i magic = _mm512_set1_epi32(E::kMagic);
  const __m512i sum = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(magnitude), _mm512_castsi512_ps(magic)));
  const __mmask16 is_subnormal = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(E::kMinNormal));
  codes = _mm512_mask_sub_epi32(codes, is_subnormal, sum, magic);
  const __m512i sign = _mm512_slli_epi32(_mm512_srli_epi32(bits, 31), 7);
  if constexpr (E::kFnuz) {
    codes = _mm512_mask_or_epi32(codes, _mm512_test_epi32_mask(codes, codes), codes, sign);
    codes = _mm512_mask_mov_epi32(codes, is_nan, _mm512_set1_epi32(E::kNan));
  } else {
    codes = _mm512_or_si512(_mm512_mask_mov_epi32(codes, is_nan, _mm512_set1_epi32(E::kNan)), sign);
  }
  return _mm512_cvtepi32_epi8(codes);
}

inline __m512 load_f32(const float* in) { return _mm512_loadu_ps(in); }
inline __m512 load_f32(const uint16_t* in) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

template <int kIndex, typename In>
int64_t encode_loop(const In* in, uint8_t* out, int64_t count, float factor, bool divide) {
  const __m512 factors = _mm512_set1_ps(factor);
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int part = 0; part < 4; ++part) {
      const __m512 values = load_f32(in + i + 16 * part);
      const __m512 scaled = divide ? _mm512_div_ps(values, factors) : _mm512_mul_ps(values, factors);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i + 16 * part), encode16<kIndex>(scaled));
    }
  }
  return i;
}

template <int kIndex>
int64_t f32_to_fp8(const float* in, uint8_t* out, int64_t count, float factor, bool divide) {
  return encode_loop<kIndex>(in, out, count, factor, divide);
}

template <int kIndex>
int64_t bf16_to_fp8(const uint16_t* in, uint8_t* out, int64_t count, float factor, bool divide) {
  return encode_loop<kIndex>(in, out, count, factor, divide);
}

// Any FP32, NaN quieted.
inline __m512i bf16_words(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i raw = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
  const __mmask16 is_nan = _mm512_cmpgt_epi32_mask(raw, _mm512_set1_epi32(0x7F800000));
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  return _mm512_mask_mov_epi32(round_to_upper(values), is_nan, quiet);
}

int64_t f32_to_bf16(const float* in, uint16_t* out, int64_t count) {
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int part = 0; part < 4; ++part) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i + 16 * part),
                          _mm512_cvtepi32_epi16(bf16_words(_mm512_loadu_ps(in + i + 16 * part))));
    }
  }
  return i;
}

int64_t bf16_to_f32(const uint16_t* in, float* out, int64_t count) {
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int part = 0; part < 4; ++part) _mm512_storeu_ps(out + i + 16 * part, load_f32(in + i + 16 * part));
  }
  return i;
}

int64_t f32_to_f16(const float* in, uint16_t* out, int64_t count) {
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int part = 0; part < 4; ++part) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i + 16 * part),
                          _mm512_cvtps_ph(_mm512_loadu_ps(in + i + 16 * part), _MM_FROUND_TO_NEAREST_INT));
    }
  }
  return i;
}

int64_t f16_to_f32(const uint16_t* in, float* out, int64_t count) {
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int part = 0; part < 4; ++part) {
      const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i + 16 * part));
      _mm512_storeu_ps(out + i + 16 * part, _mm512_cvtph_ps(words));
    }
  }
  return i;
}

template <typename In>
int64_t amax_loop(const In* in, int64_t count, uint32_t* bits) {
  const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i most[4];
  for (int part = 0; part < 4; ++part) most[part] = _mm512_set1_epi32(static_cast<int>(*bits));
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int part = 0; part < 4; ++part) {
      const __m512i lanes = _mm512_castps_si512(load_f32(in + i + 16 * part));
      most[part] = _mm512_max_epu32(most[part], _mm512_and_si512(lanes, mask));
    }
  }
  *bits =
      _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_max_epu32(most[0], most[1]), _mm512_max_epu32(most[2], most[3])));
  return i;
}

int64_t amax_f32(const float* in, int64_t count, uint32_t* bits) { return amax_loop(in, count, bits); }
int64_t amax_bf16(const uint16_t* in, int64_t count, uint32_t* bits) { return amax_loop(in, count, bits); }

template <int kIndex>
int64_t count_codes(const uint8_t* in, int64_t count, RawCounts* counts) {
  const __m512i top = _mm512_set1_epi8(kIndex == kIndexE4M3FN ? 0x7E : kIndex == kIndexE5M2 ? 0x7B : 0x7F);
  __m512i most = _mm512_setzero_si512();
  int64_t i = 0, nan = 0, infinite = 0, zero = 0, saturated = 0;
  for (; i + kChunk <= count; i += kChunk) {
    const __m512i codes = _mm512_loadu_si512(in + i);
    const __m512i magnitude = magnitude_of(codes);
    __mmask64 special = nan_mask<kIndex>(codes);
    nan += __builtin_popcountll(special);
    if constexpr (kIndex == kIndexE5M2) {
      const __mmask64 is_infinite = _mm512_cmpeq_epi8_mask(magnitude, _mm512_set1_epi8(0x7C));
      infinite += __builtin_popcountll(is_infinite);
      special |= is_infinite;
    }
    zero += __builtin_popcountll(_mm512_testn_epi8_mask(magnitude, magnitude) & ~special);
    saturated += __builtin_popcountll(_mm512_cmpeq_epi8_mask(magnitude, top) & ~special);
    most = _mm512_mask_max_epu8(most, ~special, most, magnitude);
  }
  counts->nan += nan;
  counts->infinite += infinite;
  counts->zero += zero;
  counts->saturated += saturated;
  alignas(64) uint8_t bytes[64];
  _mm512_store_si512(bytes, most);
  for (int lane = 0; lane < 64; ++lane) {
    if (bytes[lane] > counts->max_magnitude) counts->max_magnitude = bytes[lane];
  }
  return i;
}

#define INVAR_EACH_FORMAT(kernel) \
  { kernel<0>, kernel<1>, kernel<2>, kernel<3> }

constexpr CodecKernels kKernels = {
    kChunk,
    INVAR_EACH_FORMAT(fp8_to_bf16),
    INVAR_EACH_FORMAT(fp8_to_bf16_streaming),
    INVAR_EACH_FORMAT(fp8_to_f32),
    INVAR_EACH_FORMAT(fp8_to_f16),
    INVAR_EACH_FORMAT(f32_to_fp8),
    INVAR_EACH_FORMAT(bf16_to_fp8),
    f32_to_bf16,
    bf16_to_f32,
    f32_to_f16,
    f16_to_f32,
    amax_f32,
    amax_bf16,
    INVAR_EACH_FORMAT(count_codes),
};

}  // namespace
}  // namespace invar
