// The wide engine: FP32 operands and FMA, BF16 widened when an operand is prepared. Compiled for every level.
#include "core/device/cpu/matmul/store_tile.h"
#include "core/device/cpu/matmul/transpose.h"

#define INVAR_TEXT_OF(name) #name
#define INVAR_TEXT(name) INVAR_TEXT_OF(name)

namespace invar::cpu::INVAR_LEVEL_NAME {

extern const MatmulEngine kWideEngine;

namespace {

// Accumulators fill the registers but for one row of B and a scalar of A.
#if defined(__AVX512F__)
constexpr int kMr = 12, kNv = 2;
#elif defined(__AVX2__)
constexpr int kMr = 6, kNv = 2;
#else
constexpr int kMr = 4, kNv = 2;
#endif
constexpr int64_t kNr = kNv * kLanes;
constexpr int64_t kBlock = 768;
constexpr int kStep = 2;       // of the persistent panels' pairs
constexpr int64_t kAhead = 8;  // rows of B that the preparation fetches ahead

const char* at(const Operand& operand, int64_t elements) {
  return static_cast<const char*>(operand.data) + elements * (operand.dtype == kDTypeF32 ? 4 : 2);
}

template <typename Step>
INVAR_INLINE F32 load_any(const void* from, int32_t dtype, Step part) {
  return dtype == kDTypeF32 ? load(static_cast<const float*>(from), part)
                            : load(static_cast<const uint16_t*>(from), part);
}

// to[0, count) = the run of elements at `from`.
template <typename T>
INVAR_INLINE void widen_run(float* to, const T* from, int64_t count) {
  for_vectors(count, [&](int64_t i, auto part) { store(to + i, load(from + i, part), part); });
}

void widen_run(float* to, const void* from, int32_t dtype, int64_t count) {
  if (dtype == kDTypeF32) {
    widen_run(to, static_cast<const float*>(from), count);
  } else {
    widen_run(to, static_cast<const uint16_t*>(from), count);
  }
}

// A as it lies: rows an odd number of cache lines apart, so that a sliver spreads over the first-level cache's
// sets. A transposed: per sliver [k, kMr], and room for one vector.
int64_t row_stride(int64_t k) { return ((k + 15) / 16 | 1) * 16; }

int64_t sliver_floats(int64_t k, int32_t is_transposed) {
  return is_transposed ? (kMr * k + kLanes + 15) / 16 * 16 : kMr * row_stride(k);
}

size_t sliver_bytes(int64_t k, int32_t is_transposed) {
  return static_cast<size_t>(sliver_floats(k, is_transposed)) * sizeof(float);
}

// Eight inner rows at a time, so that the reads stay in the first-level cache and the writes of a sliver lie
// together.
template <typename T>
void prepare_transposed_a(float* out, const T* a, int64_t ld, int64_t rows, int64_t k) {
  constexpr int64_t kDepth = 8;
  constexpr int64_t kTouched = (kMr + kLanes - 1) / kLanes * kLanes;
  const int64_t floats = sliver_floats(k, 1);
  for (int64_t first = 0; first < k; first += kDepth) {
    const int64_t last = first + kDepth < k ? first + kDepth : k;
    float* sliver = out;
    for (int64_t r = 0; r < rows; r += kMr, sliver += floats) {
      if (r + kTouched <= rows) {
        // The last vector may reach into the sliver's next row, which is written later, or into its room.
        for (int64_t p = first; p < last; ++p) {
#pragma GCC unroll 4
          for (int64_t i = 0; i < kMr; i += kLanes) store(sliver + p * kMr + i, load(a + p * ld + r + i));
        }
      } else {
        const int64_t count = rows - r < kMr ? rows - r : kMr;
        for (int64_t p = first; p < last; ++p) widen_run(sliver + p * kMr, a + p * ld + r, count);
      }
    }
  }
}

void prepare_a(void* to, const Operand& a, int64_t rows, int64_t k) {
  float* out = static_cast<float*>(to);
  if (!a.is_transposed) {
    for (int64_t r = 0; r < rows; ++r) widen_run(out + r * row_stride(k), at(a, r * a.ld), a.dtype, k);
  } else if (a.dtype == kDTypeF32) {
    prepare_transposed_a(out, static_cast<const float*>(a.data), a.ld, rows, k);
  } else {
    prepare_transposed_a(out, static_cast<const uint16_t*>(a.data), a.ld, rows, k);
  }
}

// kLanes columns stored one after another become rows of the panel; columns beyond `cols` are zero.
template <typename Step>
INVAR_INLINE void transpose_block(float* to, const Operand& b, int64_t col, int64_t p, int64_t cols, Step part) {
  F32 block[kLanes];
#pragma GCC unroll 16
  for (int64_t c = 0; c < kLanes; ++c) {
    block[c] = col + c < cols ? load_any(at(b, (col + c) * b.ld + p), b.dtype, part) : zero();
  }
  transpose(block);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) {
    if (i < part.n) store(to + (p + i) * kNr + col, block[i]);
  }
}

template <typename T>
void prepare_straight_b(float* out, const T* b, int64_t ld, int64_t k, int64_t cols) {
  for (int64_t p = 0; p < k; ++p, b += ld, out += kNr) {
    if (p + kAhead < k) __builtin_prefetch(b + kAhead * ld);
    if (cols == kNr) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < kNr; i += kLanes) store(out + i, load(b + i));
    } else {
      widen_run(out, b, cols);
      for (int64_t c = cols; c < kNr; ++c) out[c] = 0;
    }
  }
}

void prepare_b(void* to, const Operand& b, int64_t k, int64_t cols) {
  float* out = static_cast<float*>(to);
  if (b.is_transposed) {
    for (int64_t col = 0; col < kNr; col += kLanes) {
      for_vectors(k, [&](int64_t p, auto part) { transpose_block(out, b, col, p, cols, part); });
    }
  } else if (b.dtype == kDTypeF32) {
    prepare_straight_b(out, static_cast<const float*>(b.data), b.ld, k, cols);
  } else {
    prepare_straight_b(out, static_cast<const uint16_t*>(b.data), b.ld, k, cols);
  }
}

// Persistent panels. F32: [k, kNr], as prepared. BF16: two inner rows side by side, [k / 2, kNr, 2]: transposing
// moves pairs, and a pair widens by a shift and a mask. The last row of an odd k is paired with zeros.
void pack_pairs_transposed(uint16_t* out, const Operand& b, int64_t k, int64_t cols) {
  for (int64_t col = 0; col < kNr; col += kLanes) {
    for (int64_t p = 0; p < k; p += 2 * kLanes) {
      const int64_t depth = k - p < 2 * kLanes ? k - p : 2 * kLanes;
      F32 block[kLanes];
#pragma GCC unroll 1
      for (int64_t c = 0; c < kLanes; ++c) {
        block[c] = zero();
        if (col + c < cols) {
          const char* from = at(b, (col + c) * b.ld + p);
          memcpy(&block[c], from, depth == 2 * kLanes ? sizeof(F32) : static_cast<size_t>(depth) * 2);
        }
      }
      transpose(block);
#pragma GCC unroll 1
      for (int64_t i = 0; 2 * i < depth; ++i) memcpy(out + (p + 2 * i) * kNr + 2 * col, &block[i], sizeof(F32));
    }
  }
}

void pack_pairs_straight(uint16_t* out, const Operand& b, int64_t k, int64_t cols) {
  const uint16_t* from = static_cast<const uint16_t*>(b.data);
  for (int64_t p = 0; p < k; p += 2, out += 2 * kNr) {
    const uint16_t* even = from + p * b.ld;
    const uint16_t* odd = p + 1 < k ? even + b.ld : nullptr;
    for (int64_t c = 0; c < kNr; c += kLanes) {
      U16 low{}, high{};
      const int64_t count = cols - c < kLanes ? (cols > c ? cols - c : 0) : kLanes;
      const size_t bytes = count == kLanes ? sizeof(U16) : static_cast<size_t>(count) * 2;
      memcpy(&low, even + (count > 0 ? c : 0), bytes);
      if (odd != nullptr) memcpy(&high, odd + (count > 0 ? c : 0), bytes);
      const U32 pairs = __builtin_convertvector(low, U32) | __builtin_convertvector(high, U32) << 16;
      memcpy(out + 2 * c, &pairs, sizeof(pairs));
    }
  }
}

void pack_panel(void* packed, const Operand& b, int64_t k, int64_t cols) {
  if (b.dtype == kDTypeF32) {
    prepare_b(packed, b, k, cols);
    if (k % 2 != 0) memset(static_cast<float*>(packed) + k * kNr, 0, kNr * sizeof(float));
  } else if (b.is_transposed) {
    pack_pairs_transposed(static_cast<uint16_t*>(packed), b, k, cols);
  } else {
    pack_pairs_straight(static_cast<uint16_t*>(packed), b, k, cols);
  }
}

const void* open_panel(void* to, const void* packed, int32_t dtype, int64_t k) {
  if (dtype == kDTypeF32) return packed;
  const uint32_t* from = static_cast<const uint32_t*>(packed);
  float* out = static_cast<float*>(to);
  for (int64_t p = 0; p < k; p += 2, from += kNr, out += 2 * kNr) {
    __builtin_prefetch(from + 12 * kNr);
    __builtin_prefetch(from + 12 * kNr + kNr / 2);
#pragma GCC unroll 4
    for (int64_t c = 0; c < kNr; c += kLanes) {
      U32 pairs;
      memcpy(&pairs, from + c, sizeof(pairs));
      store(out + c, from_bits(pairs << 16));
      store(out + kNr + c, from_bits(pairs & 0xffff0000u));
    }
  }
  return to;
}

template <int kRows, bool kIsTransposed>
void multiply_rows(const float* a, const float* b, int64_t k, float* tile, int32_t accumulate) {
  F32 sum[kRows][kNv];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) sum[r][j] = accumulate ? load(tile + r * kNr + j * kLanes) : zero();
  }
  // Rows are addressed from every third one, at +0, +stride and +2 stride: few enough pointers for registers.
  const int64_t stride = kIsTransposed ? 1 : row_stride(k);
  const float* third[(kRows + 2) / 3];
#pragma GCC unroll 8
  for (int t = 0; t < (kRows + 2) / 3; ++t) third[t] = a + 3 * t * stride;
#pragma GCC unroll 2
  for (int64_t p = 0; p < k; ++p) {
    F32 column[kNv];
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) column[j] = load(b + j * kLanes);
    __builtin_prefetch(b + 12 * kNr);
    if (kNr * sizeof(float) > 64) __builtin_prefetch(b + 12 * kNr + 16);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32 scalar = set(kIsTransposed ? a[r] : third[r / 3][r % 3 * stride + p]);
#pragma GCC unroll 4
      for (int j = 0; j < kNv; ++j) sum[r][j] = fma(scalar, column[j], sum[r][j]);
    }
    if (kIsTransposed) a += kMr;
    b += kNr;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) store(tile + r * kNr + j * kLanes, sum[r][j]);
  }
}

template <int kRows>
void multiply_up_to(const float* sliver, bool is_transposed, const float* panel, int64_t k, int64_t rows, float* tile,
                    int32_t accumulate) {
  if (rows == kRows) {
    (is_transposed ? multiply_rows<kRows, true> : multiply_rows<kRows, false>)(sliver, panel, k, tile, accumulate);
  } else if constexpr (kRows > 1) {
    multiply_up_to<kRows - 1>(sliver, is_transposed, panel, k, rows, tile, accumulate);
  }
}

void multiply(const void* sliver, int32_t is_transposed, const void* panel, int64_t k, int64_t rows, float* tile,
              int32_t accumulate) {
  multiply_up_to<kMr>(static_cast<const float*>(sliver), is_transposed != 0, static_cast<const float*>(panel), k, rows,
                      tile, accumulate);
}

// Few rows: pairs are widened in registers, on their way from memory to the sums. The order of additions is that of
// multiply_rows. A is not transposed.
constexpr int kPackedRows = 4;
constexpr int64_t kPackedAhead = 24;  // pairs of inner rows, 128 bytes each with AVX-512, that are fetched ahead

template <int kRows>
void multiply_packed_rows(const float* a, const uint32_t* pairs, int64_t k, float* tile, int32_t accumulate) {
  F32 sum[kRows][kNv];
  const float* row[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    row[r] = a + r * row_stride(k);
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) sum[r][j] = accumulate ? load(tile + r * kNr + j * kLanes) : zero();
  }
  const auto add_row = [&](int64_t p, const F32* values) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const F32 scalar = set(row[r][p]);
#pragma GCC unroll 4
      for (int j = 0; j < kNv; ++j) sum[r][j] = fma(scalar, values[j], sum[r][j]);
    }
  };
  for (int64_t p = 0; p < k; p += 2, pairs += kNr) {
    F32 even[kNv], odd[kNv];
    __builtin_prefetch(pairs + kPackedAhead * kNr);
    if (kNr * sizeof(uint32_t) > 64) __builtin_prefetch(pairs + kPackedAhead * kNr + 16);
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) {
      U32 pair;
      memcpy(&pair, pairs + j * kLanes, sizeof pair);
      even[j] = from_bits(pair << 16);
      odd[j] = from_bits(pair & 0xffff0000u);
    }
    add_row(p, even);
    if (p + 1 < k) add_row(p + 1, odd);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) store(tile + r * kNr + j * kLanes, sum[r][j]);
  }
}

void multiply_packed(const void* sliver, const void* packed, int64_t k, int64_t rows, float* tile, int32_t accumulate) {
  const float* a = static_cast<const float*>(sliver);
  const uint32_t* pairs = static_cast<const uint32_t*>(packed);
  switch (rows) {
    case 1: return multiply_packed_rows<1>(a, pairs, k, tile, accumulate);
    case 2: return multiply_packed_rows<2>(a, pairs, k, tile, accumulate);
    case 3: return multiply_packed_rows<3>(a, pairs, k, tile, accumulate);
    default: return multiply_packed_rows<4>(a, pairs, k, tile, accumulate);
  }
}

void store_c(const StoreArgs& args) { store_tile<kNr>(args); }

}  // namespace

const MatmulEngine kWideEngine = {INVAR_TEXT(INVAR_LEVEL_NAME),
                                  kMr,
                                  kNr,
                                  kStep,
                                  kBlock,
                                  sizeof(float),
                                  2 * kLanes,
                                  sliver_bytes,
                                  prepare_a,
                                  prepare_b,
                                  pack_panel,
                                  open_panel,
                                  multiply,
                                  store_c,
                                  kPackedRows,
                                  multiply_packed,
                                  nullptr,
                                  nullptr};

}  // namespace invar::cpu::INVAR_LEVEL_NAME
