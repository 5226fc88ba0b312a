// What a container says about one stored tensor: name, dtype, shape and where its bytes lie.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/numerics/dtype.h"

namespace invar {

// A tensor as a writer declares it.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kUnspecified;
  std::vector<int64_t> shape;  // row-major; [] is a scalar
};

// A tensor as it lies in a file. Invariant (checked when it was read): end - begin is the size of `shape` in `dtype`.
// Where a tensor is stored in one run, `begin` is where; a strided view or one of several pieces begins at the first.
struct TensorInfo : TensorSpec {
  int file = 0;       // index into the folder's files; 0 in a single file
  int64_t begin = 0;  // bytes from the start of the file, not of the data part; only for order and reports
  int64_t end = 0;
  // Of elements packed in blocks: the container's name of the format ("Q4_K"). `dtype` is then U8 and the last
  // dimension of `shape` counts the bytes of a row's blocks. Empty for plain elements; static text.
  std::string_view encoding = {};

  int64_t byte_size() const { return end - begin; }
};

// Elements of a shape; 1 for []. The product of a shape taken from a TensorInfo does not overflow.
int64_t element_count(const std::vector<int64_t>& shape);

// Bytes of `shape` in `dtype`. False when the product overflows (dimensions taken in order) or is not whole bytes.
enum class SizeCheck { kOk, kOverflow, kPartialByte };
SizeCheck checked_byte_size(DType dtype, const std::vector<int64_t>& shape, int64_t* bytes);

// "[3, 5]".
std::string shape_text(const std::vector<int64_t>& shape);

// The name in quotes, with control characters escaped and a long middle left out: names come from files.
std::string in_quotes(std::string_view name);

bool is_utf8(std::string_view text);

}  // namespace invar
