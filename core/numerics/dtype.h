// The one place that knows a number format's name and size.
#pragma once

#include <cstdint>
#include <string_view>

namespace invar {

// Numbers are stable: they equal invar.v1.DType and the public header's constants.
enum class DType : int32_t {
  kUnspecified = 0,
  kF32 = 1,
  kF16 = 2,
  kBF16 = 3,
  kF64 = 4,
  kE4M3FN = 5,    // safetensors "F8_E4M3"
  kE5M2 = 6,      // "F8_E5M2"
  kE4M3FNUZ = 7,  // "F8_E4M3FNUZ"
  kE5M2FNUZ = 8,  // "F8_E5M2FNUZ"
  kE8M0 = 9,      // "F8_E8M0": power-of-two scales
  kE2M1 = 10,     // "F4": two a byte, low nibble first
  kBool = 11,
  kU8 = 12,
  kI8 = 13,
  kU16 = 14,
  kI16 = 15,
  kU32 = 16,
  kI32 = 17,
  kU64 = 18,
  kI64 = 19,
  kC64 = 20,
  kE2M3 = 21,  // "F6_E2M3"
  kE3M2 = 22,  // "F6_E3M2"
};

// Bits of one element: 4 for E2M1, 6 for the 6-bit formats; 0 for kUnspecified.
int bits_of(DType dtype);
// Bytes of `count` elements, rounded up to whole bytes. count >= 0 and count * 64 must not overflow.
int64_t bytes_of(DType dtype, int64_t count);
// The safetensors spelling, "BF16"; "?" for kUnspecified.
std::string_view name_of(DType dtype);
// From the safetensors spelling; kUnspecified for anything else.
DType dtype_from_name(std::string_view safetensors_name);
bool is_fp8(DType dtype);    // the four 8-bit floats that hold values (not E8M0)
bool is_float(DType dtype);  // any format that holds real numbers

}  // namespace invar
