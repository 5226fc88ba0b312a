// Codecs for AVX2 with F16C. No standard-library templates here: see codec_kernels.h.
//
// FP8 decodes by way of FP16: shifted into place its bits are an FP16 number that is smaller by a power
// of two (2^8 for E4M3FN, 2^7 for E4M3FNUZ, 1 for E5M2), subnormals included, and the power is folded into
// the scale. E5M2FNUZ has finite values where FP16 has Inf and goes through FP32 bits.
#if defined(__x86_64__)

#include <immintrin.h>

#include "core/numerics/codec_kernels.h"

namespace invar {
namespace {

constexpr int64_t kChunk = 32;

template <int kIndex>
inline __m256i magnitude_of(__m256i codes) {
  return _mm256_and_si256(codes, _mm256_set1_epi8(0x7F));
}

// All-ones bytes where a code is NaN.
template <int kIndex>
inline __m256i nan_bytes(__m256i codes) {
  if constexpr (kIndex == kIndexE4M3FN) {
    return _mm256_cmpeq_epi8(magnitude_of<kIndex>(codes), _mm256_set1_epi8(0x7F));
  } else if constexpr (kIndex == kIndexE5M2) {
    return _mm256_cmpgt_epi8(magnitude_of<kIndex>(codes), _mm256_set1_epi8(0x7C));
  } else {
    return _mm256_cmpeq_epi8(codes, _mm256_set1_epi8(static_cast<char>(0x80)));
  }
}

// What the decoded numbers below are still to be multiplied by.
template <int kIndex>
constexpr float factor_of() {
  return kIndex == kIndexE4M3FN ? 256.0f : kIndex == kIndexE4M3FNUZ ? 128.0f : 1.0f;
}

// 16 codes, none of them NaN, to FP32 / factor_of.
template <int kIndex>
inline void decode16(__m128i codes, __m256* low, __m256* high) {
  if constexpr (kIndex == kIndexE5M2FNUZ) {
    const __m256i wide[2] = {_mm256_cvtepu8_epi32(codes), _mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8))};
    __m256 values[2];
    for (int half = 0; half < 2; ++half) {
      const __m256i magnitude = _mm256_and_si256(wide[half], _mm256_set1_epi32(0x7F));
      const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(wide[half], 7), 31);
      const __m256i bits = _mm256_add_epi32(_mm256_slli_epi32(magnitude, 21), _mm256_set1_epi32(111 << 23));
      // A subnormal gets a hidden bit and loses its value again.
      const __m256i is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(4), magnitude);
      const __m256 lifted =
          _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_and_si256(is_subnormal, _mm256_set1_epi32(1 << 23))));
      const __m256 hidden = _mm256_and_ps(_mm256_castsi256_ps(is_subnormal), _mm256_set1_ps(0x1p-15f));
      values[half] = _mm256_or_ps(_mm256_sub_ps(lifted, hidden), _mm256_castsi256_ps(sign));
    }
    *low = values[0];
    *high = values[1];
    return;
  }
  const __m256i upper = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
  __m256i halves = upper;
  if constexpr (kIndex != kIndexE5M2) {
    halves = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(upper, 1), _mm256_set1_epi16(0x3F80)),
                             _mm256_and_si256(upper, _mm256_set1_epi16(static_cast<int16_t>(0x8000))));
  }
  *low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  *high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}

// Nearest-even upper halves in the low 16 bits of each lane; numbers, infinities and zeros only.
inline __m256i round_to_upper(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
}

inline __m256i pack_words(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
}

template <int kIndex, bool kStreaming>
int64_t fp8_to_bf16_loop(const uint8_t* in, uint16_t* out, int64_t count, float scale) {
  const __m256 factor = _mm256_set1_ps(scale * factor_of<kIndex>());
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    if (__builtin_expect(_mm256_movemask_epi8(nan_bytes<kIndex>(codes)) != 0, 0)) {
      portable_fp8_to_bf16(kIndex, in + i, out + i, kChunk, scale);
      continue;
    }
    const __m128i parts[2] = {_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)};
    for (int part = 0; part < 2; ++part) {
      __m256 low, high;
      decode16<kIndex>(parts[part], &low, &high);
      const __m256i words =
          pack_words(round_to_upper(_mm256_mul_ps(low, factor)), round_to_upper(_mm256_mul_ps(high, factor)));
      __m256i* to = reinterpret_cast<__m256i*>(out + i + 16 * part);
      if constexpr (kStreaming) {
        _mm256_stream_si256(to, words);
      } else {
        _mm256_storeu_si256(to, words);
      }
    }
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
  const __m256 exact = _mm256_set1_ps(factor_of<kIndex>()), factor = _mm256_set1_ps(scale);
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    if (__builtin_expect(_mm256_movemask_epi8(nan_bytes<kIndex>(codes)) != 0, 0)) {
      portable_fp8_to_f32(kIndex, in + i, out + i, kChunk, scale);
      continue;
    }
    const __m128i parts[2] = {_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)};
    for (int part = 0; part < 2; ++part) {
      __m256 low, high;
      decode16<kIndex>(parts[part], &low, &high);
      _mm256_storeu_ps(out + i + 16 * part, _mm256_mul_ps(_mm256_mul_ps(low, exact), factor));
      _mm256_storeu_ps(out + i + 16 * part + 8, _mm256_mul_ps(_mm256_mul_ps(high, exact), factor));
    }
  }
  return i;
}

template <int kIndex>
int64_t fp8_to_f16(const uint8_t* in, uint16_t* out, int64_t count, float scale) {
  const __m256 exact = _mm256_set1_ps(factor_of<kIndex>()), factor = _mm256_set1_ps(scale);
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    if (__builtin_expect(_mm256_movemask_epi8(nan_bytes<kIndex>(codes)) != 0, 0)) {
      portable_fp8_to_f16(kIndex, in + i, out + i, kChunk, scale);
      continue;
    }
    const __m128i parts[2] = {_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)};
    for (int part = 0; part < 2; ++part) {
      __m256 values[2];
      decode16<kIndex>(parts[part], &values[0], &values[1]);
      for (int half = 0; half < 2; ++half) {
        const __m256 product = _mm256_mul_ps(_mm256_mul_ps(values[half], exact), factor);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i + 16 * part + 8 * half),
                         _mm256_cvtps_ph(product, _MM_FROUND_TO_NEAREST_INT));
      }
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

// Codes in the low byte of each lane.
template <int kIndex>
inline __m256i encode8(__m256 values) {
  using E = Encoder<kIndex>;
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i raw = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i is_nan = _mm256_cmpgt_epi32(raw, _mm256_set1_epi32(0x7F800000));
  // As integers magnitudes keep their order, and saturation comes before rounding.
  const __m256i magnitude = _mm256_min_epi32(raw, _mm256_castps_si256(_mm256_set1_ps(E::kMax)));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, E::kShift), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_add_epi32(magnitude, _mm256_add_epi32(odd, _mm256_set1_epi32((1 << (E::kShift - 1)) - 1)));
  const __m256i normal =
      _mm256_sub_epi32(_mm256_srli_epi32(rounded, E::kShift), _mm256_set1_epi32((127 - E::kBias) << E::kMantissa));
  // The adder rounds a subnormal: the sum's last bit is the smallest subnormal.
  const __m256i magic = _mm256_set1_epi32(E::kMagic);
  const __m256i sum = _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_castsi256_ps(magic)));
  const __m256i subnormal = _mm256_sub_epi32(sum, magic);
  const __m256i is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(E::kMinNormal), magnitude);
  __m256i codes = _mm256_blendv_epi8(normal, subnormal, is_subnormal);
  __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(bits, 31), 7);
  if constexpr (E::kFnuz) {
    sign = _mm256_andnot_si256(_mm256_cmpeq_epi32(codes, _mm256_setzero_si256()), sign);
    return _mm256_blendv_epi8(_mm256_or_si256(codes, sign), _mm256_set1_epi32(E::kNan), is_nan);
  }
  codes = _mm256_blendv_epi8(codes, _mm256_set1_epi32(E::kNan), is_nan);
  return _mm256_or_si256(codes, sign);
}

inline __m256 apply_factor(__m256 values, __m256 factor, bool divide) {
  return divide ? _mm256_div_ps(values, factor) : _mm256_mul_ps(values, factor);
}

inline __m256 load_f32(const float* in) { return _mm256_loadu_ps(in); }
inline __m256 load_f32(const uint16_t* in) {
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}

template <int kIndex, typename In>
int64_t encode_loop(const In* in, uint8_t* out, int64_t count, float factor, bool divide) {
  const __m256 factors = _mm256_set1_ps(factor);
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    __m256i codes[4];
    for (int part = 0; part < 4; ++part) {
      codes[part] = encode8<kIndex>(apply_factor(load_f32(in + i + 8 * part), factors, divide));
    }
    const __m256i bytes = _mm256_packus_epi16(pack_words(codes[0], codes[1]), pack_words(codes[2], codes[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_permute4x64_epi64(bytes, 0xD8));
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
inline __m256i bf16_words(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i raw = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i is_nan = _mm256_cmpgt_epi32(raw, _mm256_set1_epi32(0x7F800000));
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(round_to_upper(values), quiet, is_nan);
}

int64_t f32_to_bf16(const float* in, uint16_t* out, int64_t count) {
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int part = 0; part < 2; ++part) {
      const float* from = in + i + 16 * part;
      const __m256i words = pack_words(bf16_words(_mm256_loadu_ps(from)), bf16_words(_mm256_loadu_ps(from + 8)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i + 16 * part), words);
    }
  }
  return i;
}

int64_t bf16_to_f32(const uint16_t* in, float* out, int64_t count) {
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int part = 0; part < 4; ++part) _mm256_storeu_ps(out + i + 8 * part, load_f32(in + i + 8 * part));
  }
  return i;
}

int64_t f32_to_f16(const float* in, uint16_t* out, int64_t count) {
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int part = 0; part < 4; ++part) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i + 8 * part),
                       _mm256_cvtps_ph(_mm256_loadu_ps(in + i + 8 * part), _MM_FROUND_TO_NEAREST_INT));
    }
  }
  return i;
}

int64_t f16_to_f32(const uint16_t* in, float* out, int64_t count) {
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int part = 0; part < 4; ++part) {
      const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i + 8 * part));
      _mm256_storeu_ps(out + i + 8 * part, _mm256_cvtph_ps(words));
    }
  }
  return i;
}

inline uint32_t most_of(__m256i lanes) {
  alignas(32) uint32_t values[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(values), lanes);
  uint32_t most = values[0];
  for (int lane = 1; lane < 8; ++lane) most = values[lane] > most ? values[lane] : most;
  return most;
}

template <typename In>
int64_t amax_loop(const In* in, int64_t count, uint32_t* bits) {
  const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i most[4];
  for (int part = 0; part < 4; ++part) most[part] = _mm256_set1_epi32(static_cast<int>(*bits));
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int part = 0; part < 4; ++part) {
      const __m256i lanes = _mm256_castps_si256(load_f32(in + i + 8 * part));
      most[part] = _mm256_max_epu32(most[part], _mm256_and_si256(lanes, mask));
    }
  }
  *bits = most_of(_mm256_max_epu32(_mm256_max_epu32(most[0], most[1]), _mm256_max_epu32(most[2], most[3])));
  return i;
}

int64_t amax_f32(const float* in, int64_t count, uint32_t* bits) { return amax_loop(in, count, bits); }
int64_t amax_bf16(const uint16_t* in, int64_t count, uint32_t* bits) { return amax_loop(in, count, bits); }

inline int64_t set_bytes(__m256i bytes) {
  return __builtin_popcount(static_cast<uint32_t>(_mm256_movemask_epi8(bytes)));
}

template <int kIndex>
int64_t count_codes(const uint8_t* in, int64_t count, RawCounts* counts) {
  const __m256i top = _mm256_set1_epi8(kIndex == kIndexE4M3FN ? 0x7E : kIndex == kIndexE5M2 ? 0x7B : 0x7F);
  __m256i most = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    const __m256i magnitude = magnitude_of<kIndex>(codes);
    __m256i special = nan_bytes<kIndex>(codes);
    counts->nan += set_bytes(special);
    if constexpr (kIndex == kIndexE5M2) {
      const __m256i infinite = _mm256_cmpeq_epi8(magnitude, _mm256_set1_epi8(0x7C));
      counts->infinite += set_bytes(infinite);
      special = _mm256_or_si256(special, infinite);
    }
    const __m256i zero = _mm256_andnot_si256(special, _mm256_cmpeq_epi8(magnitude, _mm256_setzero_si256()));
    counts->zero += set_bytes(zero);
    counts->saturated += set_bytes(_mm256_andnot_si256(special, _mm256_cmpeq_epi8(magnitude, top)));
    most = _mm256_max_epu8(most, _mm256_andnot_si256(special, magnitude));
  }
  alignas(32) uint8_t bytes[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(bytes), most);
  for (int lane = 0; lane < 32; ++lane) {
    if (bytes[lane] > counts->max_magnitude) counts->max_magnitude = bytes[lane];
  }
  return i;
}

#define INVAR_EACH_FORMAT(kernel) \
  { kernel<0>, kernel<1>, kernel<2>, kernel<3> }

}  // namespace

const CodecKernels kCodecAvx2 = {
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

}  // namespace invar

#endif
