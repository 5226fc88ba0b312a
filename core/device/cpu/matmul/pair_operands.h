// Prepared operands of the pair engines: BF16, two consecutive inner elements side by side (AVX-512).
//
// A: [rows, k], rows an odd number of cache lines apart; a pair is two neighbours in its row.
// B: panels [k / 2, kNr, 2], which is also their persistent form.
// Both are padded with zeros to whole k steps.
#pragma once

#include "core/device/cpu/matmul/engine.h"
#include "core/device/cpu/matmul/transpose.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

constexpr int64_t kPairNr = 32;
constexpr int64_t kPairBlock = 32;  // inner elements that fill one vector

INVAR_INLINE int64_t pair_round_up(int64_t k, int64_t step) { return (k + step - 1) / step * step; }
INVAR_INLINE int64_t pair_row_stride(int64_t k) { return (pair_round_up(k, kPairBlock) / kPairBlock | 1) * kPairBlock; }

INVAR_INLINE const uint16_t* half_at(const Operand& operand, int64_t element) {
  return static_cast<const uint16_t*>(operand.data) + element;
}

// The first `count` of 32 halves at `from`, the others zero; nothing beyond them is read.
INVAR_INLINE __m512i load_halves(const uint16_t* from, int64_t count) {
  if (count >= 32) return _mm512_loadu_si512(from);
  return _mm512_maskz_loadu_epi16(count <= 0 ? 0 : (__mmask32{1} << count) - 1, from);
}

// Rows p and p + 1 woven into pairs: columns [0, 16) and [16, 32).
INVAR_INLINE void weave(__m512i even, __m512i odd, __m512i* low, __m512i* high) {
  alignas(64) static constexpr uint16_t kLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                    8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i index = _mm512_load_si512(kLow);
  *low = _mm512_permutex2var_epi16(even, index, odd);
  *high = _mm512_permutex2var_epi16(even, _mm512_add_epi16(index, _mm512_set1_epi16(16)), odd);
}

INVAR_INLINE F32 as_lanes(__m512i value) { return reinterpret_cast<F32>(value); }
INVAR_INLINE __m512i as_bits(F32 value) { return reinterpret_cast<__m512i>(value); }

// [rows, k] of A; rows beyond `rows` up to a multiple of `row_step` are zero.
inline void prepare_pair_a(void* to, const Operand& a, int64_t rows, int64_t k, int64_t row_step) {
  uint16_t* out = static_cast<uint16_t*>(to);
  const int64_t stride = pair_row_stride(k), padded = pair_round_up(k, kPairBlock);
  const int64_t padded_rows = pair_round_up(rows, row_step);
  if (!a.is_transposed) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t p = 0; p < padded; p += kPairBlock) {
        _mm512_storeu_si512(out + r * stride + p, load_halves(half_at(a, r * a.ld + p), k - p));
      }
    }
  } else {
    // Sixteen pairs of inner rows by 32 columns, woven and transposed.
    for (int64_t p = 0; p < padded; p += kPairBlock) {
      for (int64_t r = 0; r < rows; r += 32) {
        F32 left[kLanes], right[kLanes];
#pragma GCC unroll 1
        for (int64_t i = 0; i < kLanes; ++i) {
          const int64_t at = p + 2 * i;
          const __m512i even = at < k ? load_halves(half_at(a, at * a.ld + r), rows - r) : _mm512_setzero_si512();
          const __m512i odd =
              at + 1 < k ? load_halves(half_at(a, (at + 1) * a.ld + r), rows - r) : _mm512_setzero_si512();
          __m512i low, high;
          weave(even, odd, &low, &high);
          left[i] = as_lanes(low);
          right[i] = as_lanes(high);
        }
        transpose(left);
        transpose(right);
        for (int64_t i = 0; i < kLanes; ++i) {
          if (r + i < padded_rows) _mm512_storeu_si512(out + (r + i) * stride + p, as_bits(left[i]));
          if (r + 16 + i < padded_rows) _mm512_storeu_si512(out + (r + 16 + i) * stride + p, as_bits(right[i]));
        }
      }
    }
  }
  for (int64_t r = rows; r < padded_rows; ++r) {
    for (int64_t p = 0; p < padded; p += kPairBlock) _mm512_storeu_si512(out + r * stride + p, _mm512_setzero_si512());
  }
}

// One panel [k, cols] of B, padded to `k_step` rows and kPairNr columns.
inline void prepare_pair_b(void* to, const Operand& b, int64_t k, int64_t cols, int64_t k_step) {
  uint16_t* out = static_cast<uint16_t*>(to);
  const int64_t padded = pair_round_up(k, k_step);
  if (!b.is_transposed) {
    for (int64_t p = 0; p < padded; p += 2) {
      __builtin_prefetch(half_at(b, (p + 16 < k ? p + 16 : 0) * b.ld));
      __builtin_prefetch(half_at(b, (p + 17 < k ? p + 17 : 0) * b.ld));
      const __m512i even = p < k ? load_halves(half_at(b, p * b.ld), cols) : _mm512_setzero_si512();
      const __m512i odd = p + 1 < k ? load_halves(half_at(b, (p + 1) * b.ld), cols) : _mm512_setzero_si512();
      __m512i low, high;
      weave(even, odd, &low, &high);
      _mm512_storeu_si512(out + p * kPairNr, low);
      _mm512_storeu_si512(out + p * kPairNr + 32, high);
    }
    return;
  }
  for (int64_t first = 0; first < kPairNr; first += kLanes) {
    for (int64_t p = 0; p < padded; p += kPairBlock) {
      F32 block[kLanes];
      for (int64_t c = 0; c < kLanes; ++c) {
        block[c] = as_lanes(first + c < cols ? load_halves(half_at(b, (first + c) * b.ld + p), k - p)
                                             : _mm512_setzero_si512());
      }
      transpose(block);
      for (int64_t i = 0; i < kLanes && p + 2 * i < padded; ++i) {
        _mm512_storeu_si512(out + (p + 2 * i) * kPairNr + 2 * first, as_bits(block[i]));
      }
    }
  }
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
