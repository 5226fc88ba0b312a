#include "core/device/cpu/quantize/quantize.h"
#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/simd/vector.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

void fill_quantize_level(Kernels& kernels);

namespace {

constexpr int32_t kE4M3FnNumber = 5;
constexpr int32_t kE5M2Number = 6;
constexpr int64_t kChunk = 32768;      // elements a task takes, about
constexpr int64_t kColumnStrip = 128;  // columns that blocks of one column are quantised side by side

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// An 8-bit format as the encoder needs it.
struct E4M3Fn {
  static constexpr int kMantissaBits = 3, kBias = 7;
  static constexpr float kLargest = 448, kMinNormal = 0x1p-6f;
  static constexpr float kMagic = 0x1p14f;  // adding it rounds to multiples of the smallest subnormal, 2^-9
  static constexpr uint32_t kNan = 0x7f;
};
struct E5M2 {
  static constexpr int kMantissaBits = 2, kBias = 15;
  static constexpr float kLargest = 57344, kMinNormal = 0x1p-14f;
  static constexpr float kMagic = 0x1p7f;  // 2^-16
  static constexpr uint32_t kNan = 0x7e;
};

struct Encoded {
  U32 code;
  F32 value;
};

template <typename Format>
INVAR_INLINE Encoded encode(F32 x) {
  constexpr int kShift = 23 - Format::kMantissaBits;
  const U32 sign = bits(x) & 0x80000000u;
  const F32 magnitude = from_bits(bits(x) & 0x7fffffffu);
  const F32 bounded = magnitude < set(Format::kLargest) ? magnitude : set(Format::kLargest);
  const U32 u = bits(bounded);
  const U32 rounded = (u + ((1u << (kShift - 1)) - 1) + ((u >> kShift) & 1)) & ~((1u << kShift) - 1);
  const U32 normal_code = (rounded >> kShift) - ((127u - Format::kBias) << Format::kMantissaBits);
  const F32 moved = bounded + Format::kMagic;
  const U32 small_code = bits(moved) - bits(set(Format::kMagic));
  const F32 small_value = moved - Format::kMagic;
  U32 code = bounded < set(Format::kMinNormal) ? small_code : normal_code;
  F32 value = bounded < set(Format::kMinNormal) ? small_value : from_bits(rounded);
  code = magnitude == magnitude ? code : set_u32(Format::kNan);
  value = magnitude == magnitude ? value : magnitude;
  return {code | (sign >> 24), from_bits(bits(value) | sign)};
}

INVAR_INLINE void store_codes(uint8_t* to, U32 codes, Full) {
  const U8 narrowed = __builtin_convertvector(codes, U8);
  memcpy(to, &narrowed, sizeof narrowed);
}
INVAR_INLINE void store_codes(uint8_t* to, U32 codes, Part part) {
  const U8 narrowed = __builtin_convertvector(codes, U8);
  memcpy(to, &narrowed, static_cast<size_t>(part.n));
}

// Bits of the largest magnitude: infinities and NaN are above every finite number.
template <typename Act>
uint32_t largest_bits(const Act* x, int64_t count, uint32_t start) {
  U32 largest[2] = {set_u32(start), set_u32(start)};
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    largest[0] = max(largest[0], bits(load(x + i)) & 0x7fffffff);
    largest[1] = max(largest[1], bits(load(x + i + kLanes)) & 0x7fffffff);
  }
  for_vectors(count - i, [&](int64_t rest, auto part) {
    largest[0] = max(largest[0], bits(load(x + i + rest, part)) & 0x7fffffff);
  });
  return max_lanes(max(largest[0], largest[1]));
}

float float_of(uint32_t value) {
  float result;
  memcpy(&result, &value, sizeof result);
  return result;
}

struct Scale {
  float scale_inv;
  bool is_power_of_two;  // then x * (1 / scale_inv) is exactly x / scale_inv
};

template <typename Format>
Scale scale_of(uint32_t amax_bits, bool wants_power_of_two) {
  if (amax_bits == 0) return {1, true};
  const float quotient = float_of(amax_bits) / Format::kLargest;
  const float scale_inv = quotient < 0x1p-126f ? 0x1p-126f : quotient;
  if (!wants_power_of_two || amax_bits >= 0x7f800000) return {scale_inv, false};
  uint32_t up;
  memcpy(&up, &scale_inv, sizeof up);
  return {float_of((up + 0x7fffff) & 0x7f800000), true};
}

// `count` elements of one row that share a scale.
template <typename Format, typename Act, typename Copy>
void quantize_span(const Act* x, int64_t count, Scale scale, bool is_scaled, uint8_t* codes, Copy* dequantized) {
  const F32 scale_inv = set(scale.scale_inv), factor = set(1 / scale.scale_inv);
  const F32 decode_factor = is_scaled ? scale_inv : set(1);
  for_vectors(count, [&](int64_t i, auto part) {
    const F32 value = load(x + i, part);
    const Encoded encoded = encode<Format>(scale.is_power_of_two ? value * factor : value / scale_inv);
    if (codes != nullptr) store_codes(codes + i, encoded.code, part);
    if (dequantized != nullptr) store(dequantized + i, encoded.value * decode_factor, part);
  });
}

// The operand of one call, by element position.
template <typename Format, typename Act>
struct Job {
  const Act* x(int64_t row, int64_t col) const { return static_cast<const Act*>(args.x) + row * args.ldx + col; }

  template <typename Copy>
  Copy* copy(int64_t row, int64_t col) const {
    if (args.dequantized == nullptr) return nullptr;
    return static_cast<Copy*>(args.dequantized) + row * args.ld_dequantized + col;
  }

  uint32_t amax(int64_t row, int64_t rows, int64_t col, int64_t cols) const {
    uint32_t largest = 0;
    for (int64_t r = row; r < row + rows; ++r) largest = largest_bits(x(r, col), cols, largest);
    return largest;
  }

  void quantize(int64_t row, int64_t rows, int64_t col, int64_t cols, Scale scale) const {
    for (int64_t r = row; r < row + rows; ++r) {
      uint8_t* codes = args.codes == nullptr ? nullptr : args.codes + r * args.cols + col;
      if (args.dequantized_dtype == kF32) {
        quantize_span<Format>(x(r, col), cols, scale, is_scaled, codes, copy<float>(r, col));
      } else {
        quantize_span<Format>(x(r, col), cols, scale, is_scaled, codes, copy<uint16_t>(r, col));
      }
    }
  }

  const invar_quantize_args& args;
  bool is_scaled;
};

template <typename Format, typename Act>
int32_t quantize_tensor(Context& context, const Job<Format, Act>& job) {
  const invar_quantize_args& args = job.args;
  const int64_t rows_in_task = larger(1, kChunk / larger(1, args.cols));
  const int64_t tasks = ceil_div(args.rows, rows_in_task);
  if (!reserve_shared_scratch(context, kScratchOperation, static_cast<size_t>(tasks) * sizeof(uint32_t))) {
    return kResourceExhausted;
  }
  uint32_t* maxima = static_cast<uint32_t*>(shared_scratch(context, kScratchOperation));
  parallel_for(context, tasks, [&](int64_t task, int32_t) {
    const int64_t row = task * rows_in_task;
    maxima[task] = job.amax(row, smaller(rows_in_task, args.rows - row), 0, args.cols);
  });
  uint32_t amax = 0;
  for (int64_t task = 0; task < tasks; ++task) amax = maxima[task] > amax ? maxima[task] : amax;
  const Scale scale =
      args.fixed_scale_inv != 0 ? Scale{args.fixed_scale_inv, false} : scale_of<Format>(amax, args.power_of_two != 0);
  if (args.amax != nullptr) *args.amax = float_of(amax);
  if (args.rows == 0 || args.cols == 0) return kOk;
  if (args.scale_inv != nullptr) *args.scale_inv = scale.scale_inv;
  if (args.codes == nullptr && args.dequantized == nullptr) return kOk;
  parallel_for(context, tasks, [&](int64_t task, int32_t) {
    const int64_t row = task * rows_in_task;
    job.quantize(row, smaller(rows_in_task, args.rows - row), 0, args.cols, scale);
  });
  return kOk;
}

template <typename Format, typename Act>
int32_t quantize_blocks(Context& context, const Job<Format, Act>& job, int64_t block_rows, int64_t block_cols) {
  const invar_quantize_args& args = job.args;
  const int64_t grid_rows = ceil_div(args.rows, block_rows), grid_cols = ceil_div(args.cols, block_cols);
  const int64_t bands = larger(1, kChunk / larger(1, args.cols * block_rows));  // rows of blocks a task takes
  const int64_t tasks = ceil_div(grid_rows, bands);
  if (!reserve_shared_scratch(context, kScratchOperation, static_cast<size_t>(tasks) * sizeof(uint32_t))) {
    return kResourceExhausted;
  }
  uint32_t* maxima = static_cast<uint32_t*>(shared_scratch(context, kScratchOperation));
  parallel_for(context, tasks, [&](int64_t task, int32_t) {
    uint32_t largest = 0;
    for (int64_t band = task * bands; band < smaller(grid_rows, (task + 1) * bands); ++band) {
      const int64_t row = band * block_rows, rows = smaller(block_rows, args.rows - row);
      for (int64_t block = 0; block < grid_cols; ++block) {
        const int64_t col = block * block_cols, cols = smaller(block_cols, args.cols - col);
        const uint32_t amax = job.amax(row, rows, col, cols);
        const Scale scale = scale_of<Format>(amax, args.power_of_two != 0);
        if (args.scale_inv != nullptr) args.scale_inv[band * grid_cols + block] = scale.scale_inv;
        if (args.codes != nullptr || args.dequantized != nullptr) job.quantize(row, rows, col, cols, scale);
        largest = amax > largest ? amax : largest;
      }
    }
    maxima[task] = largest;
  });
  if (args.amax != nullptr) {
    uint32_t amax = 0;
    for (int64_t task = 0; task < tasks; ++task) amax = maxima[task] > amax ? maxima[task] : amax;
    *args.amax = float_of(amax);
  }
  return kOk;
}

// Blocks one column wide (the operands of weight gradients), a strip of columns at a time so that a row's part of it
// fills whole cache lines. All columns of a vector take the same branch: dividing gives the bits of multiplying.
template <typename Format, typename Act, typename Copy>
uint32_t quantize_column_strip(const Job<Format, Act>& job, int64_t row, int64_t rows, int64_t col, int64_t cols,
                               float* scale_inv_out) {
  constexpr int64_t kVectors = kColumnStrip / kLanes;
  U32 largest[kVectors] = {};
  for (int64_t r = row; r < row + rows; ++r) {
    const Act* x = job.x(r, col);
    for_vectors(cols, [&](int64_t i, auto part) {
      largest[i / kLanes] = max(largest[i / kLanes], bits(load(x + i, part)) & 0x7fffffff);
    });
  }
  F32 scale_inv[kVectors] = {}, factor[kVectors] = {};
  bool multiplies = true;
  uint32_t strip_largest = 0;
  for (int64_t i = 0; i < cols; ++i) {
    const uint32_t amax = largest[i / kLanes][i % kLanes];
    const Scale scale = scale_of<Format>(amax, job.args.power_of_two != 0);
    scale_inv[i / kLanes][i % kLanes] = scale.scale_inv;
    factor[i / kLanes][i % kLanes] = 1 / scale.scale_inv;
    multiplies = multiplies && scale.is_power_of_two;
    strip_largest = amax > strip_largest ? amax : strip_largest;
    if (scale_inv_out != nullptr) scale_inv_out[i] = scale.scale_inv;
  }
  if (job.args.codes == nullptr && job.args.dequantized == nullptr) return strip_largest;
  for (int64_t r = row; r < row + rows; ++r) {
    const Act* x = job.x(r, col);
    uint8_t* codes = job.args.codes == nullptr ? nullptr : job.args.codes + r * job.args.cols + col;
    Copy* copy = job.template copy<Copy>(r, col);
    for_vectors(cols, [&](int64_t i, auto part) {
      const int64_t v = i / kLanes;
      const F32 value = load(x + i, part);
      const Encoded encoded = encode<Format>(multiplies ? value * factor[v] : value / scale_inv[v]);
      if (codes != nullptr) store_codes(codes + i, encoded.code, part);
      if (copy != nullptr) store(copy + i, job.is_scaled ? encoded.value * scale_inv[v] : encoded.value, part);
    });
  }
  return strip_largest;
}

template <typename Format, typename Act>
int32_t quantize_columns(Context& context, const Job<Format, Act>& job, int64_t block_rows) {
  const invar_quantize_args& args = job.args;
  const int64_t bands = ceil_div(args.rows, block_rows), strips = ceil_div(args.cols, kColumnStrip);
  const int64_t tasks = bands * strips;
  if (!reserve_shared_scratch(context, kScratchOperation, static_cast<size_t>(tasks) * sizeof(uint32_t))) {
    return kResourceExhausted;
  }
  uint32_t* maxima = static_cast<uint32_t*>(shared_scratch(context, kScratchOperation));
  parallel_for(context, tasks, [&](int64_t task, int32_t) {
    const int64_t band = task / strips, row = band * block_rows, rows = smaller(block_rows, args.rows - row);
    const int64_t col = task % strips * kColumnStrip, cols = smaller(kColumnStrip, args.cols - col);
    float* scale_inv = args.scale_inv == nullptr ? nullptr : args.scale_inv + band * args.cols + col;
    maxima[task] = args.dequantized_dtype == kF32
                       ? quantize_column_strip<Format, Act, float>(job, row, rows, col, cols, scale_inv)
                       : quantize_column_strip<Format, Act, uint16_t>(job, row, rows, col, cols, scale_inv);
  });
  if (args.amax != nullptr) {
    uint32_t amax = 0;
    for (int64_t task = 0; task < tasks; ++task) amax = maxima[task] > amax ? maxima[task] : amax;
    *args.amax = float_of(amax);
  }
  return kOk;
}

template <typename Format, typename Act>
int32_t quantize_as(Context& context, const invar_quantize_args& args) {
  const Job<Format, Act> job{args, args.power_of_two != 0 || args.apply_scale != 0};
  switch (args.granularity) {
    case INVAR_SCALE_PER_TENSOR: return quantize_tensor(context, job);
    case INVAR_SCALE_PER_ROW: return quantize_blocks(context, job, 1, larger(1, args.cols));
    default:
      if (args.block_cols == 1 && args.block_rows > 1) return quantize_columns(context, job, args.block_rows);
      return quantize_blocks(context, job, args.block_rows, args.block_cols);
  }
}

}  // namespace

int32_t quantize(Context& context, const invar_quantize_args& args) {
  if (args.format == kE4M3FnNumber) {
    return args.x_dtype == kF32 ? quantize_as<E4M3Fn, float>(context, args)
                                : quantize_as<E4M3Fn, uint16_t>(context, args);
  }
  if (args.format == kE5M2Number) {
    return args.x_dtype == kF32 ? quantize_as<E5M2, float>(context, args) : quantize_as<E5M2, uint16_t>(context, args);
  }
  return reference::quantize(context, args);
}

void fill_quantize_level(Kernels& kernels) { kernels.quantize = quantize; }

}  // namespace invar::cpu::INVAR_LEVEL_NAME
