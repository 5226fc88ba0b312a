#include "core/numerics/ggml_blocks.h"

#include <cstring>

#include "core/numerics/formats.h"

namespace invar {
namespace {

constexpr int kSuper = 256;  // elements of a block of the K, IQ and TQ formats

float half_at(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return f32_from_f16(bits);
}

// E2M1 by its code, sign in bit 3.
constexpr float kE2M1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
// The uneven steps of IQ4_NL and IQ4_XS.
constexpr int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// The low nibbles of 16 bytes come before the high ones.
int nibble(const uint8_t* codes, int i) { return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4; }

void q4_0(const uint8_t* block, float* values) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) values[i] = scale * static_cast<float>(nibble(block + 2, i) - 8);
}

void q4_1(const uint8_t* block, float* values) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  for (int i = 0; i < 32; ++i) values[i] = scale * static_cast<float>(nibble(block + 4, i)) + minimum;
}

int fifth_bit(const uint8_t* bits, int i) { return (bits[i / 8] >> (i % 8) & 1) << 4; }

void q5_0(const uint8_t* block, float* values) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) {
    values[i] = scale * static_cast<float>((nibble(block + 6, i) | fifth_bit(block + 2, i)) - 16);
  }
}

void q5_1(const uint8_t* block, float* values) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  for (int i = 0; i < 32; ++i) {
    values[i] = scale * static_cast<float>(nibble(block + 8, i) | fifth_bit(block + 4, i)) + minimum;
  }
}

void q8_0(const uint8_t* block, float* values) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) values[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
}

// The scale and the scaled sum of the codes, which only products need.
void q8_1(const uint8_t* block, float* values) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) values[i] = static_cast<float>(static_cast<int8_t>(block[4 + i])) * scale;
}

void q2_k(const uint8_t* block, float* values) {
  const uint8_t *scales = block, *codes = block + 16;
  const float scale = half_at(block + 80), minimum = half_at(block + 82);
  for (int i = 0; i < kSuper; ++i) {
    const int group = i / 16;
    const float step = scale * static_cast<float>(scales[group] & 15);
    const float low = minimum * static_cast<float>(scales[group] >> 4);
    const int code = codes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    values[i] = step * static_cast<float>(code) - low;
  }
}

void q3_k(const uint8_t* block, float* values) {
  const uint8_t *high = block, *codes = block + 32, *packed = block + 96;
  const float scale = half_at(block + 108);
  for (int i = 0; i < kSuper; ++i) {
    const int group = i / 16;
    // Sixteen 6-bit scales: low nibbles in 8 bytes, then two bits of each in 4.
    const int low = packed[group % 8] >> (group / 8 * 4) & 15;
    const int top = packed[8 + group % 4] >> (group / 4 * 2) & 3;
    const float step = scale * static_cast<float>((low | top << 4) - 32);
    const int code = codes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    const int borrow = (high[i % 32] >> (i / 32) & 1) == 0 ? 4 : 0;
    values[i] = step * static_cast<float>(code - borrow);
  }
}

// Eight 6-bit scales and eight 6-bit minimums in 12 bytes.
void scale_and_minimum(const uint8_t* packed, int group, int* scale, int* minimum) {
  if (group < 4) {
    *scale = packed[group] & 63;
    *minimum = packed[group + 4] & 63;
  } else {
    *scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4;
    *minimum = packed[group + 4] >> 4 | (packed[group] >> 6) << 4;
  }
}

void q4_k(const uint8_t* block, float* values) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  for (int group = 0; group < 8; ++group) {
    int s, m;
    scale_and_minimum(block + 4, group, &s, &m);
    const float step = scale * static_cast<float>(s), low = minimum * static_cast<float>(m);
    const uint8_t* codes = block + 16 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) values[group * 32 + i] = step * static_cast<float>(codes[i] >> shift & 15) - low;
  }
}

void q5_k(const uint8_t* block, float* values) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  const uint8_t* high = block + 16;
  for (int group = 0; group < 8; ++group) {
    int s, m;
    scale_and_minimum(block + 4, group, &s, &m);
    const float step = scale * static_cast<float>(s), low = minimum * static_cast<float>(m);
    const uint8_t* codes = block + 48 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int code = (codes[i] >> shift & 15) | (high[i] >> group & 1) << 4;
      values[group * 32 + i] = step * static_cast<float>(code) - low;
    }
  }
}

void q6_k(const uint8_t* block, float* values) {
  const uint8_t *low = block, *high = block + 128, *scales = block + 192;
  const float scale = half_at(block + 208);
  for (int i = 0; i < kSuper; ++i) {
    const float step = scale * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    const int bottom = low[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
    const int top = high[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
    values[i] = step * static_cast<float>((bottom | top << 4) - 32);
  }
}

void q8_k(const uint8_t* block, float* values) {
  float scale;
  std::memcpy(&scale, block, 4);
  for (int i = 0; i < kSuper; ++i) values[i] = scale * static_cast<float>(static_cast<int8_t>(block[4 + i]));
}

void iq4_nl(const uint8_t* block, float* values) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) values[i] = scale * static_cast<float>(kIq4[nibble(block + 2, i)]);
}

void iq4_xs(const uint8_t* block, float* values) {
  const float scale = half_at(block);
  uint16_t high;
  std::memcpy(&high, block + 2, 2);
  const uint8_t *low = block + 4, *codes = block + 8;
  for (int group = 0; group < 8; ++group) {
    const int s = (low[group / 2] >> (group % 2 * 4) & 15) | (high >> (group * 2) & 3) << 4;
    const float step = scale * static_cast<float>(s - 32);
    for (int i = 0; i < 32; ++i) {
      values[group * 32 + i] = step * static_cast<float>(kIq4[nibble(codes + group * 16, i)]);
    }
  }
}

// The 512 quadruples of IQ3_S: four odd numbers 2 v + 1, v in three bits each, the first lowest.
constexpr uint16_t kIq3Grid[512] = {
    0x000, 0x001, 0x002, 0x005, 0x007, 0x008, 0x009, 0x00A, 0x00C, 0x00E, 0x010, 0x011, 0x015, 0x01B, 0x020, 0x022,
    0x025, 0x027, 0x029, 0x02B, 0x030, 0x032, 0x039, 0x03C, 0x03F, 0x040, 0x041, 0x042, 0x044, 0x048, 0x049, 0x04D,
    0x050, 0x053, 0x057, 0x059, 0x05D, 0x064, 0x071, 0x075, 0x07A, 0x080, 0x081, 0x085, 0x087, 0x088, 0x08B, 0x08E,
    0x091, 0x095, 0x098, 0x09C, 0x0A2, 0x0A5, 0x0A7, 0x0A9, 0x0AB, 0x0B8, 0x0BB, 0x0C3, 0x0C9, 0x0CD, 0x0D0, 0x0D2,
    0x0D9, 0x0DB, 0x0DE, 0x0E4, 0x0E8, 0x0EA, 0x0F7, 0x0F9, 0x0FD, 0x100, 0x10B, 0x10F, 0x111, 0x114, 0x11A, 0x120,
    0x123, 0x129, 0x138, 0x142, 0x144, 0x150, 0x152, 0x156, 0x15B, 0x161, 0x165, 0x167, 0x176, 0x17B, 0x186, 0x189,
    0x18B, 0x199, 0x1AA, 0x1B9, 0x1C0, 0x1C2, 0x1C4, 0x1D0, 0x1D2, 0x1D6, 0x1DB, 0x1E8, 0x1EC, 0x200, 0x201, 0x202,
    0x204, 0x208, 0x209, 0x20B, 0x20D, 0x20F, 0x210, 0x212, 0x219, 0x21C, 0x21E, 0x22C, 0x22E, 0x231, 0x23A, 0x240,
    0x241, 0x243, 0x246, 0x248, 0x24C, 0x251, 0x258, 0x25B, 0x261, 0x268, 0x26A, 0x278, 0x27E, 0x280, 0x28A, 0x28D,
    0x28F, 0x290, 0x294, 0x29A, 0x2A0, 0x2A3, 0x2AD, 0x2B0, 0x2BA, 0x2C1, 0x2C4, 0x2C7, 0x2C8, 0x2CB, 0x2D1, 0x2D7,
    0x2D8, 0x2DC, 0x2E1, 0x2F2, 0x2F8, 0x303, 0x305, 0x30A, 0x30C, 0x319, 0x31B, 0x322, 0x326, 0x328, 0x32C, 0x341,
    0x348, 0x34B, 0x351, 0x358, 0x35A, 0x369, 0x390, 0x394, 0x397, 0x3A4, 0x3A6, 0x3C1, 0x3C3, 0x3C8, 0x3CA, 0x3D1,
    0x3DD, 0x3E1, 0x3F2, 0x3F8, 0x400, 0x401, 0x403, 0x405, 0x407, 0x408, 0x40A, 0x40C, 0x40E, 0x411, 0x413, 0x417,
    0x418, 0x41A, 0x421, 0x423, 0x425, 0x428, 0x42A, 0x437, 0x438, 0x43B, 0x43D, 0x440, 0x442, 0x448, 0x44B, 0x44F,
    0x452, 0x455, 0x459, 0x45C, 0x462, 0x469, 0x481, 0x484, 0x487, 0x491, 0x493, 0x498, 0x49F, 0x4A1, 0x4AB, 0x4AF,
    0x4B9, 0x4BC, 0x4C0, 0x4C2, 0x4C5, 0x4C9, 0x4D2, 0x4D4, 0x4D9, 0x4DB, 0x4E2, 0x4E8, 0x4F6, 0x501, 0x507, 0x510,
    0x513, 0x51A, 0x51D, 0x521, 0x53A, 0x53D, 0x544, 0x549, 0x552, 0x55F, 0x560, 0x56B, 0x578, 0x580, 0x582, 0x587,
    0x591, 0x5AD, 0x5B1, 0x5C5, 0x5C9, 0x5D6, 0x5D8, 0x5E3, 0x5E8, 0x602, 0x609, 0x60B, 0x60D, 0x60F, 0x612, 0x619,
    0x61B, 0x61D, 0x622, 0x624, 0x627, 0x629, 0x633, 0x639, 0x641, 0x643, 0x645, 0x64C, 0x651, 0x653, 0x660, 0x670,
    0x67A, 0x67E, 0x680, 0x68A, 0x690, 0x69A, 0x69C, 0x6A8, 0x6C1, 0x6C8, 0x6CC, 0x6D1, 0x6D3, 0x6D7, 0x6D8, 0x6E1,
    0x6E3, 0x6E7, 0x6ED, 0x6FB, 0x703, 0x709, 0x70E, 0x712, 0x719, 0x72A, 0x730, 0x734, 0x741, 0x748, 0x74A, 0x755,
    0x75A, 0x764, 0x76E, 0x77B, 0x78E, 0x7A1, 0x7C1, 0x7C3, 0x7D0, 0x7D2, 0x7DD, 0x800, 0x804, 0x80A, 0x810, 0x814,
    0x817, 0x81A, 0x821, 0x828, 0x838, 0x842, 0x847, 0x849, 0x84B, 0x852, 0x858, 0x85D, 0x863, 0x869, 0x86D, 0x881,
    0x883, 0x888, 0x88D, 0x891, 0x89B, 0x8A0, 0x8AF, 0x8B2, 0x8B8, 0x8C4, 0x8C9, 0x8CB, 0x8D0, 0x8D2, 0x8D9, 0x8DD,
    0x900, 0x902, 0x914, 0x91F, 0x920, 0x939, 0x945, 0x947, 0x951, 0x972, 0x98B, 0x99C, 0x9B0, 0x9C8, 0x9CD, 0x9D8,
    0x9E3, 0x9E9, 0xA02, 0xA08, 0xA0C, 0xA12, 0xA20, 0xA24, 0xA27, 0xA2A, 0xA36, 0xA3C, 0xA41, 0xA43, 0xA45, 0xA4A,
    0xA51, 0xA5A, 0xA7A, 0xA80, 0xA89, 0xA93, 0xA98, 0xA9E, 0xAAB, 0xAC2, 0xAC7, 0xAC8, 0xAD7, 0xAE4, 0xAE9, 0xAF5,
    0xAFB, 0xB01, 0xB04, 0xB10, 0xB1A, 0xB26, 0xB4A, 0xB56, 0xB69, 0xB6B, 0xBA2, 0xBC2, 0xBC4, 0xBD2, 0xC09, 0xC0B,
    0xC0D, 0xC19, 0xC1B, 0xC30, 0xC40, 0xC50, 0xC57, 0xC74, 0xC8A, 0xC9C, 0xCA2, 0xCAD, 0xCB2, 0xCB8, 0xCC0, 0xCCC,
    0xCD1, 0xCE0, 0xD15, 0xD23, 0xD32, 0xD40, 0xD43, 0xD5C, 0xD70, 0xD85, 0xDA0, 0xDC9, 0xDCB, 0xE00, 0xE04, 0xE07,
    0xE10, 0xE12, 0xE1E, 0xE20, 0xE2C, 0xE32, 0xE42, 0xE49, 0xE54, 0xE63, 0xE65, 0xE81, 0xE84, 0xE88, 0xE8E, 0xE91,
    0xE98, 0xEA9, 0xEC2, 0xEDA, 0xEDD, 0xEEB, 0xF01, 0xF05, 0xF0B, 0xF10, 0xF28, 0xF52, 0xF62, 0xF82, 0xF99, 0xFC0,
};

void iq3_s(const uint8_t* block, float* values) {
  const float scale = half_at(block);
  const uint8_t *low = block + 2, *high = block + 66, *signs = block + 74, *scales = block + 106;
  for (int i = 0; i < kSuper; ++i) {
    const int entry = i / 4, group = i / 32;
    const float step = scale * static_cast<float>(1 + 2 * (scales[group / 2] >> (group % 2 * 4) & 15));
    const uint16_t quadruple = kIq3Grid[low[entry] | (high[entry / 8] >> (entry % 8) & 1) << 8];
    const float magnitude = step * static_cast<float>(2 * (quadruple >> (i % 4 * 3) & 7) + 1);
    values[i] = (signs[i / 8] >> (i % 8) & 1) != 0 ? -magnitude : magnitude;
  }
}

// Digit `position` of the five (or four) base-3 digits of a byte, which holds them as a fraction of 256.
int trit(uint8_t byte, int position) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(byte * kPowers[position]);
  return (shifted * 3) >> 8;
}

void tq1_0(const uint8_t* block, float* values) {
  const float scale = half_at(block + 52);
  for (int i = 0; i < kSuper; ++i) {
    int digit;
    if (i < 160) {
      digit = trit(block[i % 32], i / 32);
    } else if (i < 240) {
      digit = trit(block[32 + (i - 160) % 16], (i - 160) / 16);
    } else {
      digit = trit(block[48 + (i - 240) % 4], (i - 240) / 4);
    }
    values[i] = scale * static_cast<float>(digit - 1);
  }
}

void tq2_0(const uint8_t* block, float* values) {
  const float scale = half_at(block + 64);
  for (int i = 0; i < kSuper; ++i) {
    values[i] = scale * static_cast<float>((block[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) - 1);
  }
}

void mxfp4(const uint8_t* block, float* values) {
  const float scale = decode(DType::kE8M0, block[0]);
  for (int i = 0; i < 32; ++i) values[i] = scale * kE2M1[nibble(block + 1, i)];
}

// Four groups of 16: unsigned E4M3 scales, then the codes.
void nvfp4(const uint8_t* block, float* values) {
  for (int group = 0; group < 4; ++group) {
    const float scale = decode(DType::kE4M3FN, block[group] & 0x7Fu);
    const uint8_t* codes = block + 4 + group * 8;
    for (int i = 0; i < 16; ++i) {
      values[group * 16 + i] = scale * kE2M1[i < 8 ? codes[i] & 15 : codes[i - 8] >> 4];
    }
  }
}

constexpr DType kBlocks = DType::kUnspecified;

constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, DType::kF32, nullptr},
    {1, "F16", 1, 2, DType::kF16, nullptr},
    {2, "Q4_0", 32, 18, kBlocks, q4_0},
    {3, "Q4_1", 32, 20, kBlocks, q4_1},
    {6, "Q5_0", 32, 22, kBlocks, q5_0},
    {7, "Q5_1", 32, 24, kBlocks, q5_1},
    {8, "Q8_0", 32, 34, kBlocks, q8_0},
    {9, "Q8_1", 32, 36, kBlocks, q8_1},
    {10, "Q2_K", kSuper, 84, kBlocks, q2_k},
    {11, "Q3_K", kSuper, 110, kBlocks, q3_k},
    {12, "Q4_K", kSuper, 144, kBlocks, q4_k},
    {13, "Q5_K", kSuper, 176, kBlocks, q5_k},
    {14, "Q6_K", kSuper, 210, kBlocks, q6_k},
    {15, "Q8_K", kSuper, 292, kBlocks, q8_k},
    {16, "IQ2_XXS", kSuper, 66, kBlocks, nullptr},
    {17, "IQ2_XS", kSuper, 74, kBlocks, nullptr},
    {18, "IQ3_XXS", kSuper, 98, kBlocks, nullptr},
    {19, "IQ1_S", kSuper, 50, kBlocks, nullptr},
    {20, "IQ4_NL", 32, 18, kBlocks, iq4_nl},
    {21, "IQ3_S", kSuper, 110, kBlocks, iq3_s},
    {22, "IQ2_S", kSuper, 82, kBlocks, nullptr},
    {23, "IQ4_XS", kSuper, 136, kBlocks, iq4_xs},
    {24, "I8", 1, 1, DType::kI8, nullptr},
    {25, "I16", 1, 2, DType::kI16, nullptr},
    {26, "I32", 1, 4, DType::kI32, nullptr},
    {27, "I64", 1, 8, DType::kI64, nullptr},
    {28, "F64", 1, 8, DType::kF64, nullptr},
    {29, "IQ1_M", kSuper, 56, kBlocks, nullptr},
    {30, "BF16", 1, 2, DType::kBF16, nullptr},
    {34, "TQ1_0", kSuper, 54, kBlocks, tq1_0},
    {35, "TQ2_0", kSuper, 66, kBlocks, tq2_0},
    {39, "MXFP4", 32, 17, kBlocks, mxfp4},
    {40, "NVFP4", 64, 36, kBlocks, nvfp4},
};

}  // namespace

const GgmlType* ggml_type(uint32_t id) {
  for (const GgmlType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

const GgmlType* ggml_type(std::string_view name) {
  for (const GgmlType& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::span<const GgmlType> ggml_types() { return kTypes; }

}  // namespace invar
