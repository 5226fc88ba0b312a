#include "core/checkpoint/tile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/numerics/formats.h"
#include "core/numerics/fp_mode.h"

namespace invar {
namespace {

// E4M3 codes of 0, 0.5, 1, 1.5, 2, 3, 4, 6, then negative.
constexpr uint8_t kE4M3OfE2M1[16] = {0x00, 0x30, 0x38, 0x3C, 0x40, 0x44, 0x48, 0x4C,
                                     0x80, 0xB0, 0xB8, 0xBC, 0xC0, 0xC4, 0xC8, 0xCC};
constexpr uint8_t kE4M3Six = 0x4C;

// With scales in here every product of a non-zero FP8 value is a normal number of FP32 and BF16.
constexpr float kSmallestFastScale = 0x1p-100f, kLargestFastScale = 0x1p+100f;

Status nan_error(const CheckpointFolder& folder, const TensorPlan& plan, int64_t element, uint8_t code) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return Error(
      Code::kDataLoss, "checkpoint.nan_code",
      cat(join_path(folder.path(), folder.file_name(*plan.source)), ": tensor ", in_quotes(plan.source->name),
          " holds the code 0x", kHex[code >> 4], kHex[code & 15], " (not a finite number in ", name_of(plan.code_dtype),
          ") at ", position_text(plan.shape, element), "; set nan_policy keep to convert it as it is"));
}

// Rounds `product` to the target; counts what the target cannot hold.
void store(DType target, bool round_once, double exact, float product, std::byte* out, int64_t i, TileStats* stats) {
  float result = product;
  if (target == DType::kBF16) {
    const uint16_t bits = round_once ? bf16_from_f64(exact) : bf16_from_f32(product);
    std::memcpy(out + i * 2, &bits, 2);
    result = f32_from_bf16(bits);
  } else if (target == DType::kF16) {
    const float once = round_once ? round_to_odd(exact) : product;
    const uint16_t bits = f16_from_f32(once);
    std::memcpy(out + i * 2, &bits, 2);
    result = f32_from_f16(bits);
  } else {
    result = round_once ? static_cast<float>(exact) : product;
    std::memcpy(out + i * 4, &result, 4);
  }
  if (std::isinf(result) && std::isfinite(exact)) ++stats->overflows;
  if (result == 0 && exact != 0) ++stats->underflows;
}

}  // namespace

float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // toward zero
  return std::bit_cast<float>(bits | 1u);
}

void TileStats::add(const TileStats& other) {
  codes.merge(other.codes);
  overflows += other.overflows;
  underflows += other.underflows;
  reencode_checked += other.reencode_checked;
  reencode_mismatched += other.reencode_mismatched;
  reencode_proved += other.reencode_proved;
  unproved = unproved || other.unproved;
  powers_of_two = powers_of_two && other.powers_of_two;
  amax = std::max(amax, other.amax);
  if (other.largest_scale > 0) {
    smallest_scale = largest_scale > 0 ? std::min(smallest_scale, other.smallest_scale) : other.smallest_scale;
    largest_scale = std::max(largest_scale, other.largest_scale);
  }
}

void unpack_fp4(std::span<const std::byte> packed, uint8_t* e4m3) {
  for (size_t i = 0; i < packed.size(); ++i) {
    const auto pair = static_cast<uint8_t>(packed[i]);
    e4m3[2 * i] = kE4M3OfE2M1[pair & 15];
    e4m3[2 * i + 1] = kE4M3OfE2M1[pair >> 4];
  }
}

std::string tile_checksum(std::span<const uint64_t> digests) {
  uint64_t digest = digests.size() == 1
                        ? digests[0]
                        : tile_hash(digests.data(), static_cast<int64_t>(digests.size() * 8), CpuLevel::kPortable);
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, digest >>= 4) text[static_cast<size_t>(i)] = "0123456789abcdef"[digest & 15];
  return text;
}

float result_value(DType dtype, const std::byte* values, int64_t index) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, values + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, values + index * 2, 2);
  return decode(dtype, bits);
}

Tile::Tile(const CheckpointFolder& folder, const TileOptions& options)
    : folder_(folder), options_(options), values_(folder) {}

Status Tile::convert(const TensorPlan& plan, int64_t first, std::span<const std::byte> stored, std::byte* out,
                     TileStats* stats, BlockMaxima* maxima) {
  const FpModeScope mode;
  const bool packed = plan.coding == Coding::kPackedFp4;
  const auto* bytes = reinterpret_cast<const uint8_t*>(stored.data());
  const int64_t n = static_cast<int64_t>(stored.size()) * (packed ? 2 : 1);
  DType dtype = plan.code_dtype;
  if (packed) {
    unpacked_.resize(static_cast<size_t>(n));
    unpack_fp4(stored, unpacked_.data());
    bytes = unpacked_.data();
    dtype = DType::kE4M3FN;
  }
  INVAR_TRY(scales_.load(folder_, plan, first, n));
  TileStats own;
  if (!scales_.unscaled()) {
    own.smallest_scale = scales_.smallest();
    own.largest_scale = scales_.largest();
    own.powers_of_two = scales_.powers_of_two();
  }
  bool fast = dtype != DType::kE8M0;
  if (fast) {
    count_codes(dtype, bytes, n, own.codes, options_.level);
    fast = own.codes.nan + own.codes.infinite == 0 && !options_.round_once && !scales_.has_zero() &&
           !scales_.divides() && scales_.smallest() >= kSmallestFastScale && scales_.largest() <= kLargestFastScale;
    // FP16 is narrow: a tile that may leave it is counted element by element.
    if (options_.target == DType::kF16) {
      fast = fast && min_subnormal(dtype) * scales_.smallest() >= 0x1p-24f &&
             max_finite(dtype) * scales_.largest() < 65504.0f;
    }
  }
  if (fast) {
    convert_fast(dtype, first, bytes, n, out);
  } else {
    own.codes = {};
    INVAR_TRY(convert_scalar(plan, dtype, first, bytes, n, out, &own));
  }
  if (packed) {  // 6 is the largest E2M1 value
    own.codes.saturated = std::count_if(bytes, bytes + n, [](uint8_t code) { return (code & 0x7F) == kE4M3Six; });
  }
  note_largest(out, n, &own);
  if (maxima != nullptr) maxima->note(plan, first, bytes, n, column_maxima_);
  const CodeProof proof = fast ? prove_codes(dtype, first, n) : CodeProof::kNone;
  const int64_t encoded = proof == CodeProof::kFails ? n : std::min(n, kReencodeSample);
  encode_back(plan, first, bytes, encoded, out, &own);
  own.reencode_proved = n - encoded;
  own.unproved = proof != CodeProof::kHolds;
  stats->add(own);
  return {};
}

Status Tile::convert_decoded(const TensorPlan& plan, int64_t first, int64_t n, std::byte* out, TileStats* stats) {
  const FpModeScope mode;
  decoded_.resize(static_cast<size_t>(n));
  INVAR_TRY(values_.read(plan, first, decoded_));
  TileStats own;
  const bool finite = amax_bits_f32(decoded_.data(), n, options_.level) < 0x7F800000u;
  for (int64_t i = 0; i < n && !finite; ++i) {
    const float value = decoded_[static_cast<size_t>(i)];
    if (std::isfinite(value)) continue;
    if (!options_.keep_nan) {
      return Error(
          Code::kDataLoss, "checkpoint.not_finite",
          cat(join_path(folder_.path(), folder_.file_name(*plan.source)), ": tensor ", in_quotes(plan.source->name),
              " (", plan.layout, ") has the value ", value, " at ", position_text(plan.shape, first + i),
              ": a scale is not finite or too large; set nan_policy keep to convert it as it is"));
    }
    ++(std::isnan(value) ? own.codes.nan : own.codes.infinite);
  }
  if (finite && options_.target == DType::kBF16) {
    convert_f32_to_bf16(decoded_.data(), reinterpret_cast<uint16_t*>(out), n, options_.level);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      const float value = decoded_[static_cast<size_t>(i)];
      store(options_.target, false, value, value, out, i, &own);
    }
  }
  own.codes.zero = std::count(decoded_.begin(), decoded_.end(), 0.0f);
  note_largest(out, n, &own);
  stats->add(own);
  return {};
}

void Tile::convert_fast(DType dtype, int64_t first, const uint8_t* codes, int64_t n, std::byte* out) const {
  const auto row = [&](int64_t begin, int64_t count, const float* scales, int64_t until, int64_t block) {
    std::byte* to = out + begin * (options_.target == DType::kF32 ? 4 : 2);
    convert_fp8_row(dtype, codes + begin, options_.target, to, count, scales, until, block, options_.level);
  };
  if (scales_.unscaled()) {
    const float one = 1;
    row(0, n, &one, n, n);
    return;
  }
  const ScaleGrid& grid = scales_.term()->grid;
  if (grid.grid_rows == 1 && grid.grid_cols == 1 && grid.shared) {
    row(0, n, scales_.row(0), n, n);
    return;
  }
  for (int64_t done = 0; done < n;) {
    const int64_t col = (first + done) % grid.cols;
    const int64_t count = std::min(n - done, grid.cols - col);
    const int64_t block = col / grid.block_cols;
    row(done, count, scales_.row((first + done) / grid.cols) + (block - scales_.first_block()),
        (block + 1) * grid.block_cols - col, grid.block_cols);
    done += count;
  }
}

Status Tile::convert_scalar(const TensorPlan& plan, DType dtype, int64_t first, const uint8_t* codes, int64_t n,
                            std::byte* out, TileStats* stats) {
  const FormatInfo& format = format_info(dtype);
  const float* table = decode_table(dtype);
  float scale = 1;
  int64_t run_end = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i == run_end) {
      scale = scales_.at(first + i);
      run_end = i + scales_.run(first + i, n - i);
    }
    const uint8_t code = codes[i];
    const float value = table[code];
    const uint32_t magnitude = code & format.magnitude_mask();
    if (!std::isfinite(value)) {
      if (!options_.keep_nan) return nan_error(folder_, plan, first + i, code);
      ++(std::isnan(value) ? stats->codes.nan : stats->codes.infinite);
    } else {
      stats->codes.zero += value == 0;
      stats->codes.saturated += magnitude == format.max_code;
      stats->codes.max_magnitude = std::max(stats->codes.max_magnitude, magnitude);
    }
    if (scale == 0 && value != 0) {
      return Error(
          Code::kDataLoss, "checkpoint.scale_zero",
          cat(join_path(folder_.path(), folder_.file_name(*scales_.term()->tensor)), ": scale ",
              in_quotes(scales_.term()->tensor->name), " is 0 at ", scales_.place_of(first + i), " but weight ",
              in_quotes(plan.source->name), " has a non-zero code at ", position_text(plan.shape, first + i)));
    }
    if (scales_.divides()) {
      const bool zero = scale == 0;
      store(options_.target, options_.round_once, zero ? 0.0 : static_cast<double>(value) / scale,
            zero ? value : value / scale, out, i, stats);
    } else {
      store(options_.target, options_.round_once, static_cast<double>(value) * scale, value * scale, out, i, stats);
    }
  }
  return {};
}

Tile::CodeProof Tile::prove_codes(DType dtype, int64_t first, int64_t n) const {
  // A product with a power of two is exact.
  if (scales_.unscaled() || scales_.powers_of_two()) return CodeProof::kHolds;
  // With few elements under a scale, they are fewer than the codes.
  if (scales_.count() * 256 > n) return CodeProof::kNone;
  const FormatInfo& format = format_info(dtype);
  uint8_t codes[256], back[256];
  int64_t finite = 0;
  for (uint32_t code = 0; code < 256; ++code) {
    if (!format.is_nan(code) && !format.is_inf(code)) codes[finite++] = static_cast<uint8_t>(code);
  }
  float wide[256];
  uint16_t narrow[256];
  const ScaleGrid& grid = scales_.term()->grid;
  for (int64_t slot = 0; slot < scales_.count(); ++slot) {
    // A block of several rows lies in several tiles: the one with its first row sees to it.
    const int64_t grid_row = (scales_.begin() + slot) / grid.grid_cols;
    const bool whole_rows = grid.row_ends.empty() && !grid.shared && grid.block_rows > 1 && grid.rows > 0;
    if (whole_rows) {
      const int64_t matrix = grid_row / grid.grid_rows, row = grid_row % grid.grid_rows * grid.block_rows;
      const int64_t element = (matrix * grid.rows + row) * grid.cols;
      if (element < first - grid.cols + 1 || element >= first + n) continue;
    }
    const float scale = scales_.value(slot);
    switch (options_.target) {
      case DType::kBF16:
        convert_fp8_to_bf16(dtype, codes, narrow, finite, scale, Store::kCached, options_.level);
        convert_bf16_to_fp8(dtype, narrow, back, finite, scale, Apply::kDivide, options_.level);
        break;
      case DType::kF16:
        convert_fp8_to_f16(dtype, codes, narrow, finite, scale, options_.level);
        convert_f16_to_f32(narrow, wide, finite, options_.level);
        convert_f32_to_fp8(dtype, wide, back, finite, scale, Apply::kDivide, options_.level);
        break;
      default:
        convert_fp8_to_f32(dtype, codes, wide, finite, scale, options_.level);
        convert_f32_to_fp8(dtype, wide, back, finite, scale, Apply::kDivide, options_.level);
    }
    if (std::memcmp(codes, back, static_cast<size_t>(finite)) != 0) return CodeProof::kFails;
  }
  return CodeProof::kHolds;
}

void Tile::encode_back(const TensorPlan& plan, int64_t first, const uint8_t* codes, int64_t n, const std::byte* out,
                       TileStats* stats) const {
  for (int64_t i = 0; i < n; ++i) {
    const float scale = scales_.at(first + i), value = result_value(options_.target, out, i);
    if (scale == 0 || !std::isfinite(value)) continue;
    const float before = scales_.divides() ? value * scale : value / scale;
    ++stats->reencode_checked;
    const uint8_t code = encode_fp8(plan.code_dtype, before);
    const uint8_t expected = plan.coding == Coding::kPackedFp4 ? kE4M3OfE2M1[code & 15] : code;
    stats->reencode_mismatched += expected != codes[i];
  }
}

void Tile::note_largest(const std::byte* out, int64_t n, TileStats* stats) const {
  if (options_.target == DType::kF32) {
    const uint32_t bits = amax_bits_f32(reinterpret_cast<const float*>(out), n, options_.level);
    if (bits < 0x7F800000u) stats->amax = std::max<double>(stats->amax, std::bit_cast<float>(bits));
  } else {
    // The largest magnitude as an integer, of BF16 and F16 alike.
    const uint32_t bits = amax_bits_bf16(reinterpret_cast<const uint16_t*>(out), n, options_.level) >> 16;
    const float value = decode(options_.target, bits);
    if (std::isfinite(value)) stats->amax = std::max<double>(stats->amax, value);
  }
}

void Tile::cast(DType from, std::span<const std::byte> values, std::byte* out, TileStats* stats) {
  const FpModeScope mode;
  TileStats own;
  const int64_t n = static_cast<int64_t>(values.size()) / (bits_of(from) / 8);
  for (int64_t i = 0; i < n; ++i) {
    const float value = result_value(from, values.data(), i);
    store(options_.target, false, value, value, out, i, &own);
  }
  note_largest(out, n, &own);
  stats->add(own);
}

}  // namespace invar
