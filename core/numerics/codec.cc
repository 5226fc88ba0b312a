#include "core/numerics/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/numerics/codec_kernels.h"
#include "core/numerics/fp_mode.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace invar {
namespace {

const CodecKernels& kernels_of(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512Bf16) return kCodecAvx512Bf16;
  if (level >= CpuLevel::kAvx512) return kCodecAvx512;
  if (level >= CpuLevel::kAvx2) return kCodecAvx2;
#endif
  return kCodecPortable;
}

int index_of(DType format) {
  switch (format) {
    case DType::kE4M3FN: return kIndexE4M3FN;
    case DType::kE5M2: return kIndexE5M2;
    case DType::kE4M3FNUZ: return kIndexE4M3FNUZ;
    default: return kIndexE5M2FNUZ;
  }
}

constexpr int64_t kMostChunk = 64;

// Runs `kernel(in, out, count)` over the span; what is left after its whole chunks goes through padded buffers.
// Padding is zero, which is an ordinary value of every format here.
template <typename In, typename Out, typename Kernel>
void run(const Kernel& kernel, int64_t chunk, const In* in, Out* out, int64_t count) {
  const int64_t done = kernel(in, out, count);
  const int64_t rest = count - done;
  if (rest == 0) return;
  alignas(64) In padded_in[kMostChunk] = {};
  alignas(64) Out padded_out[kMostChunk];
  std::copy_n(in + done, rest, padded_in);
  kernel(padded_in, padded_out, chunk);
  std::copy_n(padded_out, rest, out + done);
}

// As above for kernels that only read; `kernel(in, count)`.
template <typename In, typename Kernel>
void run_reading(const Kernel& kernel, int64_t chunk, const In* in, int64_t count) {
  const int64_t done = kernel(in, count);
  const int64_t rest = count - done;
  if (rest == 0) return;
  In padded_in[kMostChunk] = {};
  std::copy_n(in + done, rest, padded_in);
  kernel(padded_in, chunk);
}

// Products of such a scale with any FP8 value are zero or normal in FP32 and BF16.
bool is_ordinary(float scale) {
  const float magnitude = std::fabs(scale);
  return magnitude >= 0x1p-100f && magnitude <= 0x1p100f;
}

void store_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// Elements up to the next 64-byte boundary of `out`.
int64_t elements_to_boundary(const uint16_t* out) {
  const uintptr_t past = reinterpret_cast<uintptr_t>(out) % 64;
  return past == 0 ? 0 : static_cast<int64_t>((64 - past) / sizeof(uint16_t));
}

// One scale, mode already set, no fence.
void fp8_to_bf16(const CodecKernels& kernels, int index, const uint8_t* codes, uint16_t* out, int64_t count,
                 float scale, Store store) {
  if (!is_ordinary(scale)) return portable_fp8_to_bf16(index, codes, out, count, scale);
  const auto cached = [&](const uint8_t* from, uint16_t* to, int64_t n) {
    return kernels.fp8_to_bf16[index](from, to, n, scale);
  };
  if (store == Store::kCached) return run(cached, kernels.chunk, codes, out, count);
  const int64_t head = std::min(count, elements_to_boundary(out));
  if (head > 0) run(cached, kernels.chunk, codes, out, head);
  const auto streaming = [&](const uint8_t* from, uint16_t* to, int64_t n) {
    return kernels.fp8_to_bf16_streaming[index](from, to, n, scale);
  };
  run(streaming, kernels.chunk, codes + head, out + head, count - head);
}

}  // namespace

uint16_t bf16_from_fp8(DType format, uint8_t code, float scale, ProductRounding rounding) {
  const FpModeScope mode;
  const float value = decode(format, code);
  if (format_info(format).is_nan(code)) return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  if (rounding == ProductRounding::kOnce) return bf16_from_f64(static_cast<double>(value) * scale);
  return bf16_from_f32(value * scale);
}

void convert_fp8_to_bf16(DType format, const uint8_t* codes, uint16_t* out, int64_t count, float scale, Store store,
                         CpuLevel level) {
  const FpModeScope mode;
  fp8_to_bf16(kernels_of(level), index_of(format), codes, out, count, scale, store);
  if (store == Store::kStreaming) store_fence();
}

void convert_fp8_row_to_bf16(DType format, const uint8_t* codes, uint16_t* out, int64_t count, const float* scales,
                             int64_t segment, Store store, CpuLevel level) {
  const FpModeScope mode;
  const CodecKernels& kernels = kernels_of(level);
  const int index = index_of(format);
  for (int64_t start = 0; start < count; start += segment) {
    const int64_t length = std::min(segment, count - start);
    fp8_to_bf16(kernels, index, codes + start, out + start, length, *scales++, store);
  }
  if (store == Store::kStreaming) store_fence();
}

void convert_fp8_row(DType format, const uint8_t* codes, DType to, void* out, int64_t count, const float* scales,
                     int64_t first, int64_t segment, CpuLevel level) {
  const FpModeScope mode;
  const CodecKernels& kernels = kernels_of(level);
  const int index = index_of(format);
  int64_t length = std::min(first, count);
  for (int64_t start = 0; start < count; start += length, length = std::min(segment, count - start), ++scales) {
    const uint8_t* from = codes + start;
    if (to == DType::kBF16) {
      fp8_to_bf16(kernels, index, from, static_cast<uint16_t*>(out) + start, length, *scales, Store::kCached);
    } else if (to == DType::kF16) {
      run([&](const uint8_t* in, uint16_t* half, int64_t n) { return kernels.fp8_to_f16[index](in, half, n, *scales); },
          kernels.chunk, from, static_cast<uint16_t*>(out) + start, length);
    } else {
      run([&](const uint8_t* in, float* f32, int64_t n) { return kernels.fp8_to_f32[index](in, f32, n, *scales); },
          kernels.chunk, from, static_cast<float*>(out) + start, length);
    }
  }
}

void convert_fp8_to_bf16_once(DType format, const uint8_t* codes, uint16_t* out, int64_t count, float scale) {
  uint16_t table[256];
  for (int code = 0; code < 256; ++code) {
    table[code] = bf16_from_fp8(format, static_cast<uint8_t>(code), scale, ProductRounding::kOnce);
  }
  for (int64_t i = 0; i < count; ++i) out[i] = table[codes[i]];
}

void convert_fp8_to_f32(DType format, const uint8_t* codes, float* out, int64_t count, float scale, CpuLevel level) {
  const FpModeScope mode;
  const CodecKernels& kernels = kernels_of(level);
  const auto kernel = [&, index = index_of(format)](const uint8_t* from, float* to, int64_t n) {
    return kernels.fp8_to_f32[index](from, to, n, scale);
  };
  run(kernel, kernels.chunk, codes, out, count);
}

void convert_fp8_to_f16(DType format, const uint8_t* codes, uint16_t* out, int64_t count, float scale, CpuLevel level) {
  const FpModeScope mode;
  const CodecKernels& kernels = kernels_of(level);
  const auto kernel = [&, index = index_of(format)](const uint8_t* from, uint16_t* to, int64_t n) {
    return kernels.fp8_to_f16[index](from, to, n, scale);
  };
  run(kernel, kernels.chunk, codes, out, count);
}

void convert_f32_to_fp8(DType format, const float* in, uint8_t* codes, int64_t count, float factor, Apply apply,
                        CpuLevel level) {
  const FpModeScope mode;
  const CodecKernels& kernels = kernels_of(level);
  const auto kernel = [&, index = index_of(format)](const float* from, uint8_t* to, int64_t n) {
    return kernels.f32_to_fp8[index](from, to, n, factor, apply == Apply::kDivide);
  };
  run(kernel, kernels.chunk, in, codes, count);
}

void convert_bf16_to_fp8(DType format, const uint16_t* in, uint8_t* codes, int64_t count, float factor, Apply apply,
                         CpuLevel level) {
  const FpModeScope mode;
  const CodecKernels& kernels = kernels_of(level);
  const auto kernel = [&, index = index_of(format)](const uint16_t* from, uint8_t* to, int64_t n) {
    return kernels.bf16_to_fp8[index](from, to, n, factor, apply == Apply::kDivide);
  };
  run(kernel, kernels.chunk, in, codes, count);
}

void convert_f32_to_bf16(const float* in, uint16_t* out, int64_t count, CpuLevel level) {
  const CodecKernels& kernels = kernels_of(level);
  run(kernels.f32_to_bf16, kernels.chunk, in, out, count);
}

void convert_bf16_to_f32(const uint16_t* in, float* out, int64_t count, CpuLevel level) {
  const CodecKernels& kernels = kernels_of(level);
  run(kernels.bf16_to_f32, kernels.chunk, in, out, count);
}

void convert_f32_to_f16(const float* in, uint16_t* out, int64_t count, CpuLevel level) {
  const FpModeScope mode;
  const CodecKernels& kernels = kernels_of(level);
  run(kernels.f32_to_f16, kernels.chunk, in, out, count);
}

void convert_f16_to_f32(const uint16_t* in, float* out, int64_t count, CpuLevel level) {
  const FpModeScope mode;
  const CodecKernels& kernels = kernels_of(level);
  run(kernels.f16_to_f32, kernels.chunk, in, out, count);
}

uint32_t amax_bits_f32(const float* in, int64_t count, CpuLevel level) {
  const CodecKernels& kernels = kernels_of(level);
  uint32_t bits = 0;
  run_reading([&](const float* from, int64_t n) { return kernels.amax_f32(from, n, &bits); }, kernels.chunk, in, count);
  return bits;
}

uint32_t amax_bits_bf16(const uint16_t* in, int64_t count, CpuLevel level) {
  const CodecKernels& kernels = kernels_of(level);
  uint32_t bits = 0;
  run_reading([&](const uint16_t* from, int64_t n) { return kernels.amax_bf16(from, n, &bits); }, kernels.chunk, in,
              count);
  return bits;
}

void Fp8Counts::merge(const Fp8Counts& other) {
  nan += other.nan;
  infinite += other.infinite;
  zero += other.zero;
  saturated += other.saturated;
  max_magnitude = std::max(max_magnitude, other.max_magnitude);
}

void count_codes(DType format, const uint8_t* codes, int64_t count, Fp8Counts& counts, CpuLevel level) {
  const int index = index_of(format);
  RawCounts raw{};
  // The tail is counted by scalar code: padding would count as zeros.
  const int64_t done = kernels_of(level).count_codes[index](codes, count, &raw);
  kCodecPortable.count_codes[index](codes + done, count - done, &raw);
  counts.merge({raw.nan, raw.infinite, raw.zero, raw.saturated, raw.max_magnitude});
}

void raise_to_magnitudes(const uint8_t* codes, int64_t count, uint8_t* largest) {
  int64_t i = 0;
#if defined(__SSE2__)
  const __m128i magnitude = _mm_set1_epi8(0x7F);
  for (; i + 16 <= count; i += 16) {
    const __m128i row = _mm_and_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i)), magnitude);
    auto* at = reinterpret_cast<__m128i*>(largest + i);
    _mm_storeu_si128(at, _mm_max_epu8(row, _mm_loadu_si128(at)));
  }
#endif
  for (; i < count; ++i) largest[i] = std::max<uint8_t>(largest[i], codes[i] & 0x7F);
}

void count_half_range(DType format, const uint8_t* codes, const uint16_t* out, int64_t count, HalfCounts& counts) {
  const FormatInfo& info = format_info(format);
  uint8_t nonzero_finite[256];
  for (uint32_t code = 0; code < 256; ++code) {
    nonzero_finite[code] = !info.is_nan(code) && !info.is_inf(code) && decode(format, code) != 0;
  }
  int64_t overflowed = 0, underflowed = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t exponent = out[i] & 0x7C00u;
    overflowed += nonzero_finite[codes[i]] & (exponent == 0x7C00u);
    underflowed += nonzero_finite[codes[i]] & (exponent == 0);
  }
  counts.overflowed += overflowed;
  counts.underflowed += underflowed;
}

bool convert_to_f32(DType from, const void* in, float* out, int64_t count, CpuLevel level) {
  switch (from) {
    case DType::kF32: std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float)); return true;
    case DType::kF64: {
      const FpModeScope mode;
      const double* values = static_cast<const double*>(in);
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(values[i]);
      return true;
    }
    case DType::kF16: convert_f16_to_f32(static_cast<const uint16_t*>(in), out, count, level); return true;
    case DType::kBF16: convert_bf16_to_f32(static_cast<const uint16_t*>(in), out, count, level); return true;
    case DType::kE4M3FN:
    case DType::kE5M2:
    case DType::kE4M3FNUZ:
    case DType::kE5M2FNUZ: convert_fp8_to_f32(from, static_cast<const uint8_t*>(in), out, count, 1, level); return true;
    case DType::kE8M0: {
      // By bits: a copy through a float register would be safe too, but a multiply would not (2^-127 is subnormal).
      const uint32_t* table = decode_table_bits(from);
      const uint8_t* codes = static_cast<const uint8_t*>(in);
      for (int64_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(table[codes[i]]);
      return true;
    }
    case DType::kE2M1: {
      const float* table = decode_table(from);
      const uint8_t* packed = static_cast<const uint8_t*>(in);
      for (int64_t i = 0; i < count; ++i) out[i] = table[packed[i / 2] >> (i % 2 * 4) & 0xF];
      return true;
    }
    default: return false;
  }
}

bool convert_from_f32(DType to, const float* in, void* out, int64_t count, CpuLevel level) {
  switch (to) {
    case DType::kF32: std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float)); return true;
    case DType::kF64: {
      const FpModeScope mode;
      double* values = static_cast<double*>(out);
      for (int64_t i = 0; i < count; ++i) values[i] = static_cast<double>(in[i]);
      return true;
    }
    case DType::kF16: convert_f32_to_f16(in, static_cast<uint16_t*>(out), count, level); return true;
    case DType::kBF16: convert_f32_to_bf16(in, static_cast<uint16_t*>(out), count, level); return true;
    case DType::kE4M3FN:
    case DType::kE5M2:
    case DType::kE4M3FNUZ:
    case DType::kE5M2FNUZ:
      convert_f32_to_fp8(to, in, static_cast<uint8_t*>(out), count, 1, Apply::kMultiply, level);
      return true;
    case DType::kE8M0: {
      uint8_t* codes = static_cast<uint8_t*>(out);
      for (int64_t i = 0; i < count; ++i) codes[i] = encode_fp8(to, in[i]);
      return true;
    }
    case DType::kE2M1: {
      uint8_t* packed = static_cast<uint8_t*>(out);
      for (int64_t i = 0; i < count; ++i) {
        const uint8_t code = encode_fp8(to, in[i]);
        packed[i / 2] = i % 2 == 0 ? code : static_cast<uint8_t>(packed[i / 2] | code << 4);
      }
      return true;
    }
    default: return false;
  }
}

}  // namespace invar
