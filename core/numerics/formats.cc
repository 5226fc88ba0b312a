#include "core/numerics/formats.h"

namespace invar {
namespace {

constexpr int kSmallFormats = 8;  // of at most 8 bits

struct Tables {
  DType dtypes[kSmallFormats];
  std::array<uint32_t, 256> bits[kSmallFormats];
};

constexpr Tables make_tables() {
  Tables tables{};
  int next = 0;
  for (const FormatInfo& format : kFormats) {
    if (format.bits() > 8) continue;
    tables.dtypes[next] = format.dtype;
    tables.bits[next++] = make_decode_table(format);
  }
  return tables;
}

alignas(64) constexpr Tables kTables = make_tables();
static_assert(kTables.dtypes[kSmallFormats - 1] == DType::kE3M2);

// The same numbers stored as floats (an integer read as a float would break aliasing rules).
struct FloatTables {
  std::array<float, 256> values[kSmallFormats];
};

constexpr FloatTables make_float_tables() {
  FloatTables tables{};
  for (int format = 0; format < kSmallFormats; ++format) {
    for (int code = 0; code < 256; ++code) {
      tables.values[format][code] = std::bit_cast<float>(kTables.bits[format][code]);
    }
  }
  return tables;
}

alignas(64) constexpr FloatTables kFloatTables = make_float_tables();

int table_index(DType format) {
  for (int index = 0; index < kSmallFormats; ++index) {
    if (kTables.dtypes[index] == format) return index;
  }
  return -1;
}

}  // namespace

const uint32_t* decode_table_bits(DType format) {
  const int index = table_index(format);
  return index < 0 ? nullptr : kTables.bits[index].data();
}

const float* decode_table(DType format) {
  const int index = table_index(format);
  return index < 0 ? nullptr : kFloatTables.values[index].data();
}

uint16_t bf16_from_f64(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t magnitude = bits & 0x7FFFFFFFFFFFFFFFu;
  const uint16_t sign = static_cast<uint16_t>(bits >> 48 & 0x8000u);
  if (magnitude > 0x7FF0000000000000u) {
    return static_cast<uint16_t>(sign | 0x7FC0u | (magnitude >> 45 & 0x3Fu));
  }
  const int exponent_field = static_cast<int>(magnitude >> 52);
  if (exponent_field > 1023 + 127) return static_cast<uint16_t>(sign | 0x7F80u);
  const int exponent = exponent_field - 1023;
  // FP64 subnormals are far below half of the smallest BF16.
  if (exponent < -135) return sign;
  const uint64_t significand = (magnitude & 0xFFFFFFFFFFFFFu) | 0x10000000000000u;
  const int scale = exponent > -126 ? exponent : -126;
  const int dropped = scale - 7 - (exponent - 52);
  uint64_t kept = significand >> dropped;
  const uint64_t half = uint64_t{1} << (dropped - 1), rest = significand & ((uint64_t{1} << dropped) - 1);
  if (rest > half || (rest == half && (kept & 1u) != 0)) ++kept;
  return static_cast<uint16_t>(sign | ((static_cast<uint64_t>(scale + 126) << 7) + kept));
}

}  // namespace invar
