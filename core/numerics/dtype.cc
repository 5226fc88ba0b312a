#include "core/numerics/dtype.h"

namespace invar {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  int bits;
  bool floating;
};

constexpr Entry kTable[] = {
    {DType::kF32, "F32", 32, true},
    {DType::kF16, "F16", 16, true},
    {DType::kBF16, "BF16", 16, true},
    {DType::kF64, "F64", 64, true},
    {DType::kE4M3FN, "F8_E4M3", 8, true},
    {DType::kE5M2, "F8_E5M2", 8, true},
    {DType::kE4M3FNUZ, "F8_E4M3FNUZ", 8, true},
    {DType::kE5M2FNUZ, "F8_E5M2FNUZ", 8, true},
    {DType::kE8M0, "F8_E8M0", 8, true},
    {DType::kE2M1, "F4", 4, true},
    {DType::kBool, "BOOL", 8, false},
    {DType::kU8, "U8", 8, false},
    {DType::kI8, "I8", 8, false},
    {DType::kU16, "U16", 16, false},
    {DType::kI16, "I16", 16, false},
    {DType::kU32, "U32", 32, false},
    {DType::kI32, "I32", 32, false},
    {DType::kU64, "U64", 64, false},
    {DType::kI64, "I64", 64, false},
    {DType::kC64, "C64", 64, false},
    {DType::kE2M3, "F6_E2M3", 6, true},
    {DType::kE3M2, "F6_E3M2", 6, true},
};

constexpr Entry kNone{DType::kUnspecified, "?", 0, false};

const Entry& entry_of(DType dtype) {
  for (const Entry& entry : kTable) {
    if (entry.dtype == dtype) return entry;
  }
  return kNone;
}

}  // namespace

int bits_of(DType dtype) { return entry_of(dtype).bits; }
int64_t bytes_of(DType dtype, int64_t count) { return (count * entry_of(dtype).bits + 7) / 8; }
std::string_view name_of(DType dtype) { return entry_of(dtype).name; }
bool is_float(DType dtype) { return entry_of(dtype).floating; }

DType dtype_from_name(std::string_view safetensors_name) {
  for (const Entry& entry : kTable) {
    if (entry.name == safetensors_name) return entry.dtype;
  }
  return DType::kUnspecified;
}

bool is_fp8(DType dtype) {
  return dtype == DType::kE4M3FN || dtype == DType::kE5M2 || dtype == DType::kE4M3FNUZ || dtype == DType::kE5M2FNUZ;
}

}  // namespace invar
