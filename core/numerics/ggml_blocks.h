// The number formats of GGUF files: runs of 32, 64 or 256 elements packed into one block with its scales.
//
//   const GgmlType* type = ggml_type(12);                       // Q4_K
//   type->decode(block, values);                                // type->block_elements floats
//
// A format is one line of the table in ggml_blocks.cc. The arithmetic is FP32 in the order of the format's own reader:
// scale of the group first, then times the code, then plus or minus the minimum, each rounded; so the values are equal
// bit for bit. A scale that is NaN or infinite gives values that are not finite; the caller refuses them.
// Thread rule: pure functions and constants.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/numerics/dtype.h"

namespace invar {

struct GgmlType {
  uint32_t id;            // as files store it
  std::string_view name;  // "Q4_K"
  int32_t block_elements, block_bytes;
  DType dtype;                                          // of the plain formats; kUnspecified for blocks
  void (*decode)(const uint8_t* block, float* values);  // null: plain, or not read yet

  bool is_plain() const { return dtype != DType::kUnspecified; }
};

// Null for numbers that are unknown or were removed.
const GgmlType* ggml_type(uint32_t id);
// By name; null when unknown.
const GgmlType* ggml_type(std::string_view name);
std::span<const GgmlType> ggml_types();

}  // namespace invar
