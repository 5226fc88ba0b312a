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

void prepare_a(void* to, const Operand& a, int64_t rows, int64_t k) {
  float* out = static_cast<float*>(to);
  if (!a.is_transposed) {
    for (int64_t r = 0; r < rows; ++r) widen_run(out + r * row_stride(k), at(a, r * a.ld), a.dtype, k);
    return;
  }
  const int64_t slivers = rows / kMr, floats = sliver_floats(k, 1);
  constexpr int64_t kTouched = (kMr + kLanes - 1) / kLanes * kLanes;
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t s = 0; s < slivers; ++s) {
      // The last vector may reach into the sliver's next row, which is written later, or into its room. Reading
      // stays inside the operand by the test.
      float* row = out + s * floats + p * kMr;
      if (s * kMr + kTouched <= rows) {
        for (int64_t i = 0; i < kMr; i += kLanes) {
          store(row + i, load_any(at(a, p * a.ld + s * kMr + i), a.dtype, Full{}));
        }
      } else {
        widen_run(row, at(a, p * a.ld + s * kMr), a.dtype, kMr);
      }
    }
    const int64_t done = slivers * kMr;
    widen_run(out + slivers * floats + p * kMr, at(a, p * a.ld + done), a.dtype, rows - done);
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

void prepare_b(void* to, const Operand& b, int64_t k, int64_t cols) {
  float* out = static_cast<float*>(to);
  if (b.is_transposed) {
    for (int64_t col = 0; col < kNr; col += kLanes) {
      for_vectors(k, [&](int64_t p, auto part) { transpose_block(out, b, col, p, cols, part); });
    }
    return;
  }
  for (int64_t p = 0; p < k; ++p) {
    __builtin_prefetch(at(b, (p + kAhead < k ? p + kAhead : k - 1) * b.ld));
    float* row = out + p * kNr;
    const void* from = at(b, p * b.ld);
    if (cols == kNr) {
      for (int64_t i = 0; i < kNr; i += kLanes) store(row + i, load_any(at(b, p * b.ld + i), b.dtype, Full{}));
    } else {
      widen_run(row, from, b.dtype, cols);
      for (int64_t c = cols; c < kNr; ++c) row[c] = 0;
    }
  }
}

// Persistent panels: [k, kNr] in the weights' own dtype.
void pack_panel(void* packed, const Operand& b, int64_t k, int64_t cols) {
  if (b.dtype == kDTypeF32) {
    prepare_b(packed, b, k, cols);
    return;
  }
  constexpr int64_t kRows = 32;
  alignas(64) float wide[kRows * kNr];
  for (int64_t p = 0; p < k; p += kRows) {
    const int64_t depth = k - p < kRows ? k - p : kRows;
    Operand part = b;
    part.data = at(b, b.is_transposed ? p : p * b.ld);
    prepare_b(wide, part, depth, cols);
    uint16_t* out = static_cast<uint16_t*>(packed) + p * kNr;
    // These floats are BF16 values: their upper halves are exact.
    for (int64_t i = 0; i < depth * kNr; i += kLanes) {
      const U16 half = __builtin_convertvector(bits(load(wide + i)) >> 16, U16);
      memcpy(out + i, &half, sizeof(half));
    }
  }
}

const void* open_panel(void* to, const void* packed, int32_t dtype, int64_t k) {
  if (dtype == kDTypeF32) return packed;
  const uint16_t* from = static_cast<const uint16_t*>(packed);
  float* out = static_cast<float*>(to);
  for (int64_t i = 0; i < k * kNr; i += kNr) {
    __builtin_prefetch(from + i + 16 * kNr);
    for (int64_t j = 0; j < kNr; j += kLanes) store(out + i + j, load(from + i + j));
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

void store_c(const StoreArgs& args) { store_tile(args, kNr); }

}  // namespace

const MatmulEngine kWideEngine = {INVAR_TEXT(INVAR_LEVEL_NAME),
                                  kMr,
                                  kNr,
                                  1,
                                  kBlock,
                                  sizeof(float),
                                  sliver_bytes,
                                  prepare_a,
                                  prepare_b,
                                  pack_panel,
                                  open_panel,
                                  multiply,
                                  store_c,
                                  nullptr,
                                  nullptr};

}  // namespace invar::cpu::INVAR_LEVEL_NAME
