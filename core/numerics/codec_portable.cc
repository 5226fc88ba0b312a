// The codecs in plain C++: the definition of every kernel, and what runs where nothing wider is known.
#include <cstring>

#include "core/numerics/codec_kernels.h"
#include "core/numerics/formats.h"

namespace invar {
namespace {

constexpr DType kOfIndex[kFp8Formats] = {DType::kE4M3FN, DType::kE5M2, DType::kE4M3FNUZ, DType::kE5M2FNUZ};
// Below this a table of all 256 results costs more than it saves.
constexpr int64_t kTableWorthwhile = 512;

template <int kIndex>
uint32_t f32_product_bits(const float* values, uint8_t code, float scale) {
  constexpr FormatInfo kFormat = format_info(kOfIndex[kIndex]);
  return std::bit_cast<uint32_t>(kFormat.is_nan(code) ? values[code] : values[code] * scale);
}

// out[i] = rule(in[i]), by table for long spans.
template <typename Out, typename Rule>
void by_code(const uint8_t* in, Out* out, int64_t count, const Rule& rule) {
  if (count < kTableWorthwhile) {
    for (int64_t i = 0; i < count; ++i) out[i] = rule(in[i]);
    return;
  }
  Out table[256];
  for (int code = 0; code < 256; ++code) table[code] = rule(static_cast<uint8_t>(code));
  for (int64_t i = 0; i < count; ++i) out[i] = table[in[i]];
}

template <int kIndex>
int64_t fp8_to_bf16(const uint8_t* in, uint16_t* out, int64_t count, float scale) {
  const float* values = decode_table(kOfIndex[kIndex]);
  by_code(in, out, count, [=](uint8_t code) {
    return bf16_from_f32(std::bit_cast<float>(f32_product_bits<kIndex>(values, code, scale)));
  });
  return count;
}

template <int kIndex>
int64_t fp8_to_f32(const uint8_t* in, float* out, int64_t count, float scale) {
  const float* values = decode_table(kOfIndex[kIndex]);
  by_code(in, out, count,
          [=](uint8_t code) { return std::bit_cast<float>(f32_product_bits<kIndex>(values, code, scale)); });
  return count;
}

template <int kIndex>
int64_t fp8_to_f16(const uint8_t* in, uint16_t* out, int64_t count, float scale) {
  const float* values = decode_table(kOfIndex[kIndex]);
  by_code(in, out, count, [=](uint8_t code) {
    return f16_from_f32(std::bit_cast<float>(f32_product_bits<kIndex>(values, code, scale)));
  });
  return count;
}

template <int kIndex>
uint8_t encode_one(float value, float factor, bool divide) {
  constexpr FormatInfo kFormat = format_info(kOfIndex[kIndex]);
  const float scaled = divide ? value / factor : value * factor;
  return static_cast<uint8_t>(encode_bits(kFormat, std::bit_cast<uint32_t>(scaled), Overflow::kSaturate));
}

template <int kIndex>
int64_t f32_to_fp8(const float* in, uint8_t* out, int64_t count, float factor, bool divide) {
  for (int64_t i = 0; i < count; ++i) out[i] = encode_one<kIndex>(in[i], factor, divide);
  return count;
}

template <int kIndex>
int64_t bf16_to_fp8(const uint16_t* in, uint8_t* out, int64_t count, float factor, bool divide) {
  for (int64_t i = 0; i < count; ++i) out[i] = encode_one<kIndex>(f32_from_bf16(in[i]), factor, divide);
  return count;
}

int64_t f32_to_bf16(const float* in, uint16_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = bf16_from_f32(in[i]);
  return count;
}

int64_t bf16_to_f32(const uint16_t* in, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = f32_from_bf16(in[i]);
  return count;
}

int64_t f32_to_f16(const float* in, uint16_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = f16_from_f32(in[i]);
  return count;
}

int64_t f16_to_f32(const uint16_t* in, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = f32_from_f16(in[i]);
  return count;
}

int64_t amax_f32(const float* in, int64_t count, uint32_t* bits) {
  uint32_t most = *bits;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(in[i]) & 0x7FFFFFFFu;
    most = magnitude > most ? magnitude : most;
  }
  *bits = most;
  return count;
}

int64_t amax_bf16(const uint16_t* in, int64_t count, uint32_t* bits) {
  uint32_t most = *bits;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = (static_cast<uint32_t>(in[i]) & 0x7FFFu) << 16;
    most = magnitude > most ? magnitude : most;
  }
  *bits = most;
  return count;
}

template <int kIndex>
int64_t count_codes(const uint8_t* in, int64_t count, RawCounts* counts) {
  constexpr FormatInfo kFormat = format_info(kOfIndex[kIndex]);
  // Locals: a byte of the input might be a byte of *counts, as far as the compiler knows.
  RawCounts sums = *counts;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t code = in[i], magnitude = code & kFormat.magnitude_mask();
    const bool is_nan = kFormat.is_nan(code), is_inf = kFormat.is_inf(code), is_number = !is_nan && !is_inf;
    sums.nan += is_nan;
    sums.infinite += is_inf;
    sums.zero += is_number & (magnitude == 0);
    sums.saturated += is_number & (magnitude == kFormat.max_code);
    const uint32_t finite = is_number ? magnitude : 0;
    sums.max_magnitude = finite > sums.max_magnitude ? finite : sums.max_magnitude;
  }
  *counts = sums;
  return count;
}

#define INVAR_EACH_FORMAT(kernel) \
  { kernel<0>, kernel<1>, kernel<2>, kernel<3> }

}  // namespace

void portable_fp8_to_bf16(int format_index, const uint8_t* in, uint16_t* out, int64_t count, float scale) {
  kCodecPortable.fp8_to_bf16[format_index](in, out, count, scale);
}

void portable_fp8_to_f32(int format_index, const uint8_t* in, float* out, int64_t count, float scale) {
  kCodecPortable.fp8_to_f32[format_index](in, out, count, scale);
}

void portable_fp8_to_f16(int format_index, const uint8_t* in, uint16_t* out, int64_t count, float scale) {
  kCodecPortable.fp8_to_f16[format_index](in, out, count, scale);
}

const CodecKernels kCodecPortable = {
    1,
    INVAR_EACH_FORMAT(fp8_to_bf16),
    INVAR_EACH_FORMAT(fp8_to_bf16),
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
