// One tile: a run of a weight's stored codes becomes a run of result values, with counts and checks in the same pass.
//
//   Tile tile(folder, options);                                        // one per worker
//   INVAR_TRY(tile.convert(plan, first, codes, out, &stats));
//
// The arithmetic: code -> FP32 by table, times the FP32 scale in FP32, rounded to nearest even to the target (or the
// product in FP64 and one rounding). The span codecs do the ordinary tiles; tiles with NaN codes, zero scales or scales
// beyond 2^+-100 take the scalar path, which defines the result and counts what the target cannot hold. The
// floating-point mode is set for the call and restored: a host that flushes subnormals changes nothing.
// Thread rule: one Tile belongs to one thread.
#pragma once

#include <span>
#include <vector>

#include "core/checkpoint/block_maxima.h"
#include "core/checkpoint/scale_window.h"
#include "core/checkpoint/tile_hash.h"
#include "core/checkpoint/values.h"
#include "core/numerics/codec.h"

namespace invar {

// Elements of a tile. Fixed, because checksums are taken tile by tile: see tile_checksum.
inline constexpr int64_t kTileElements = int64_t{1} << 17;
// Of these many elements of every tile convert() encodes the written result itself. Of the rest it proves, where codes
// are fewer than elements, that every code under their scale encodes back; where one does not, it encodes them all.
inline constexpr int64_t kReencodeSample = 256;

struct TileOptions {
  DType target = DType::kBF16;  // BF16, F16 or F32
  bool round_once = false;      // FP64 product
  bool keep_nan = false;
  CpuLevel level = CpuLevel::kPortable;
};

struct TileStats {
  Fp8Counts codes;
  int64_t overflows = 0, underflows = 0;  // results beyond the target; non-zero products that became zero
  // Results that were encoded; those under scales of which some tile proved that every code encodes back, which counts
  // only when every tile could: a block may reach from one tile into the next.
  int64_t reencode_checked = 0, reencode_mismatched = 0, reencode_proved = 0;
  bool unproved = false;
  double amax = 0;  // of the results, NaN and Inf apart
  float smallest_scale = 0, largest_scale = 0;
  bool powers_of_two = true;  // every scale is one

  void add(const TileStats& other);
};

class Tile {
 public:
  Tile(const CheckpointFolder& folder, const TileOptions& options);

  // stored: the bytes of elements [first, first + n); out: n elements of the target dtype, aligned to 4. maxima: may be
  // null. checkpoint.nan_code, checkpoint.scale_zero (zero scale, non-zero code) and the errors of ScaleWindow::load.
  Status convert(const TensorPlan& plan, int64_t first, std::span<const std::byte> stored, std::byte* out,
                 TileStats* stats, BlockMaxima* maxima = nullptr);
  // The same for a plan with a decoder, which reads its bytes itself. checkpoint.not_finite names the element.
  Status convert_decoded(const TensorPlan& plan, int64_t first, int64_t n, std::byte* out, TileStats* stats);
  // A tensor that is not quantised, in another float dtype (BF16 or F16 to F16 or F32).
  void cast(DType from, std::span<const std::byte> values, std::byte* out, TileStats* stats);

  uint64_t hash(std::span<const std::byte> bytes) const {
    return tile_hash(bytes.data(), static_cast<int64_t>(bytes.size()), options_.level);
  }

 private:
  void convert_fast(DType dtype, int64_t first, const uint8_t* codes, int64_t n, std::byte* out) const;
  Status convert_scalar(const TensorPlan& plan, DType dtype, int64_t first, const uint8_t* codes, int64_t n,
                        std::byte* out, TileStats* stats);
  // Whether every finite code encodes back under every scale whose block begins in [first, first + n).
  enum class CodeProof { kNone, kHolds, kFails };
  CodeProof prove_codes(DType dtype, int64_t first, int64_t n) const;
  void encode_back(const TensorPlan& plan, int64_t first, const uint8_t* codes, int64_t n, const std::byte* out,
                   TileStats* stats) const;
  void note_largest(const std::byte* out, int64_t n, TileStats* stats) const;

  const CheckpointFolder& folder_;
  TileOptions options_;
  ScaleWindow scales_;
  ValueReader values_;
  std::vector<uint8_t> unpacked_, column_maxima_;
  std::vector<float> decoded_;
};

// Packed E2M1 codes as E4M3 codes of the same values, one a byte: every E2M1 value is an E4M3 value.
void unpack_fp4(std::span<const std::byte> packed, uint8_t* e4m3);

// A tensor's checksum from the XXH3-64 digests of its tiles, in order: the digest itself for one tile, XXH3-64 over the
// little-endian digests otherwise. 16 hex digits.
std::string tile_checksum(std::span<const uint64_t> digests);

// FP64 to FP32 so that a second rounding to fewer bits gives the nearest value: inexact results get an odd last bit.
float round_to_odd(double value);

// The value of element `index` of a run of BF16, F16 or F32.
float result_value(DType dtype, const std::byte* values, int64_t index);

}  // namespace invar
