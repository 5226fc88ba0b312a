#include "core/container/tensor_info.h"

#include <limits>

#include "core/base/status.h"

namespace invar {

int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

SizeCheck checked_byte_size(DType dtype, const std::vector<int64_t>& shape, int64_t* bytes) {
  int64_t bits = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bits, size, &bits)) return SizeCheck::kOverflow;
  }
  if (__builtin_mul_overflow(bits, int64_t{bits_of(dtype)}, &bits)) return SizeCheck::kOverflow;
  if (bits % 8 != 0) return SizeCheck::kPartialByte;
  *bytes = bits / 8;
  return SizeCheck::kOk;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::string in_quotes(std::string_view name) {
  constexpr size_t kHead = 160, kTail = 40;
  const bool shortened = name.size() > kHead + kTail + 8;
  std::string text = "\"";
  for (size_t i = 0; i < name.size(); ++i) {
    if (shortened && i == kHead) {
      text += cat("...(", name.size() - kHead - kTail, " bytes)...");
      i = name.size() - kTail;
    }
    const auto byte = static_cast<unsigned char>(name[i]);
    if (byte < 0x20 || byte == 0x7f) {
      constexpr char kHex[] = "0123456789abcdef";
      text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      text += name[i];
    }
  }
  return text + "\"";
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int extra = lead < 0x80 ? 0 : lead >> 5 == 6 ? 1 : lead >> 4 == 14 ? 2 : lead >> 3 == 30 ? 3 : -1;
    if (extra < 0 || i + static_cast<size_t>(extra) >= text.size()) return false;
    uint32_t point = extra == 0 ? lead : lead & (0x3fu >> extra);
    for (int k = 1; k <= extra; ++k) {
      const auto next = static_cast<unsigned char>(text[i + static_cast<size_t>(k)]);
      if (next >> 6 != 2) return false;
      point = point << 6 | (next & 0x3fu);
    }
    constexpr uint32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
    if (point < kSmallest[extra] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return false;
    i += static_cast<size_t>(extra) + 1;
  }
  return true;
}

}  // namespace invar
