#include "core/numerics/stochastic.h"

#include "core/base/rng.h"
#include "core/numerics/fp_mode.h"

namespace invar {
namespace {

// Sets these draws apart from every other use of the same seed.
constexpr uint64_t kPurpose = 0x73746F63682D726Eu;

std::array<uint32_t, 4> block_of(const StochasticKey& key, uint64_t block) {
  return philox4x32(key.seed ^ kPurpose, block, key.step);
}

// out[i] = rule(in[i], random bits of i); one draw serves four neighbours.
template <typename Out, typename Rule>
void for_each(const float* in, Out* out, int64_t count, const StochasticKey& key, uint64_t first_index,
              const Rule& rule) {
  int64_t i = 0;
  while (i < count) {
    const uint64_t index = first_index + static_cast<uint64_t>(i);
    const auto words = block_of(key, index / 4);
    for (uint64_t word = index % 4; word < 4 && i < count; ++word, ++i) out[i] = rule(in[i], words[word]);
  }
}

uint16_t bf16_stochastic(float value, uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits >> 16) + ((random >> 16) < (bits & 0xFFFFu) ? 1 : 0));
}

}  // namespace

uint32_t stochastic_bits(const StochasticKey& key, uint64_t index) { return block_of(key, index / 4)[index % 4]; }

uint32_t encode_stochastic(DType dtype, float value, uint32_t random) {
  const FormatInfo& format = format_info(dtype);
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7FFFFFFFu;
  const Overflow overflow = format.bits() == 16 ? Overflow::kNonFinite : Overflow::kSaturate;
  if (magnitude >= 0x7F800000u) return encode_bits(format, bits, overflow);
  const int exponent_field = static_cast<int>(magnitude >> 23);
  const int exponent = exponent_field == 0 ? -126 : exponent_field - 127;
  const uint32_t significand = (magnitude & 0x7FFFFFu) | (exponent_field == 0 ? 0 : 0x800000u);
  const int scale = exponent > 1 - format.bias ? exponent : 1 - format.bias;
  const int dropped = scale - format.mantissa_bits - (exponent - 23);  // at least 13
  // significand = kept * 2^dropped + rest; fraction = rest / 2^dropped in units of 2^-32.
  const uint32_t kept = dropped < 32 ? significand >> dropped : 0;
  const uint32_t rest = dropped < 32 ? significand & ((1u << dropped) - 1) : significand;
  const uint64_t fraction = dropped <= 32  ? static_cast<uint64_t>(rest) << (32 - dropped)
                            : dropped < 64 ? static_cast<uint64_t>(rest) >> (dropped - 32)
                                           : 0;
  const uint32_t rounded = kept + (random < fraction ? 1 : 0);
  const uint32_t code = (static_cast<uint32_t>(scale + format.bias - 1) << format.mantissa_bits) + rounded;
  const uint32_t sign = (bits >> 31) != 0 ? format.sign_mask() : 0;
  if (code > format.max_code) return sign | (format.bits() == 16 ? format.max_code + 1 : format.max_code);
  if (format.specials == Specials::kFnuz && code == 0) return 0;
  return sign | code;
}

void convert_f32_to_bf16_stochastic(const float* in, uint16_t* out, int64_t count, const StochasticKey& key,
                                    uint64_t first_index) {
  for_each(in, out, count, key, first_index, bf16_stochastic);
}

void convert_f32_to_f16_stochastic(const float* in, uint16_t* out, int64_t count, const StochasticKey& key,
                                   uint64_t first_index) {
  for_each(in, out, count, key, first_index, [](float value, uint32_t random) {
    return static_cast<uint16_t>(encode_stochastic(DType::kF16, value, random));
  });
}

void convert_f32_to_fp8_stochastic(DType format, const float* in, uint8_t* codes, int64_t count, float scale,
                                   const StochasticKey& key, uint64_t first_index) {
  const FpModeScope mode;
  for_each(in, codes, count, key, first_index, [format, scale](float value, uint32_t random) {
    return static_cast<uint8_t>(encode_stochastic(format, value * scale, random));
  });
}

}  // namespace invar
