// The pair engine on AMX: 32 x 32 micro-tiles in four accumulator tiles, two of A and two of B.
// Compiled twice: for the processor's tiles, and with INVAR_AMX_MODEL for the software model.
#include "core/device/cpu/matmul/amx_tiles.h"
#include "core/device/cpu/matmul/pair_operands.h"
#include "core/device/cpu/matmul/store_tile.h"

namespace invar::cpu {
namespace INVAR_LEVEL_NAME {
namespace {

constexpr int64_t kMr = 32, kTileRows = 16;
constexpr int64_t kStep = 32;    // inner elements of a tile row
constexpr int64_t kBlock = 640;  // a panel of B and a sliver of A share the first-level cache

// Tiles 0 1 / 2 3: the accumulators; 4, 5: upper and lower rows of A; 6, 7: left and right columns of B.
void begin() {
  TileConfig config{};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = kTileRows;
    config.row_bytes[tile] = 64;
  }
  TILE_CONFIGURE(&config);
}

void end() { TILE_RELEASE(); }

size_t sliver_bytes(int64_t k, int32_t) { return static_cast<size_t>(kMr * pair_row_stride(k)) * sizeof(uint16_t); }

void prepare_a(void* to, const Operand& a, int64_t rows, int64_t k) { prepare_pair_a(to, a, rows, k, kTileRows); }
void prepare_b(void* to, const Operand& b, int64_t k, int64_t cols) { prepare_pair_b(to, b, k, cols, kStep); }
const void* open_panel(void*, const void* packed, int32_t, int64_t) { return packed; }

void multiply(const void* sliver, int32_t, const void* panel, int64_t k, int64_t rows, float* tile,
              int32_t accumulate) {
  const int64_t a_stride = pair_row_stride(k);
  constexpr long kBStride = kPairNr * 4, kTileStride = kPairNr * 4;
  const auto a_bytes = static_cast<long>(a_stride * 2);
  const uint16_t* a = static_cast<const uint16_t*>(sliver);
  const uint16_t* b = static_cast<const uint16_t*>(panel);
  const bool has_lower = rows > kTileRows;
  if (accumulate) {
    TILE_LOAD(0, tile, kTileStride);
    TILE_LOAD(1, tile + 16, kTileStride);
  } else {
    TILE_ZERO(0);
    TILE_ZERO(1);
  }
  if (has_lower && accumulate) {
    TILE_LOAD(2, tile + kTileRows * kPairNr, kTileStride);
    TILE_LOAD(3, tile + kTileRows * kPairNr + 16, kTileStride);
  } else if (has_lower) {
    TILE_ZERO(2);
    TILE_ZERO(3);
  }
  if (has_lower) {
    for (int64_t p = 0; p < k; p += kStep) {
      TILE_LOAD(6, b, kBStride);
      TILE_LOAD(4, a + p, a_bytes);
      TILE_DOT(0, 4, 6);
      TILE_LOAD(5, a + kTileRows * a_stride + p, a_bytes);
      TILE_DOT(2, 5, 6);
      TILE_LOAD(7, b + 32, kBStride);
      TILE_DOT(1, 4, 7);
      TILE_DOT(3, 5, 7);
      b += kStep * kPairNr;
    }
    TILE_STORE(2, tile + kTileRows * kPairNr, kTileStride);
    TILE_STORE(3, tile + kTileRows * kPairNr + 16, kTileStride);
  } else {
    for (int64_t p = 0; p < k; p += kStep) {
      TILE_LOAD(6, b, kBStride);
      TILE_LOAD(4, a + p, a_bytes);
      TILE_DOT(0, 4, 6);
      TILE_LOAD(7, b + 32, kBStride);
      TILE_DOT(1, 4, 7);
      b += kStep * kPairNr;
    }
  }
  TILE_STORE(0, tile, kTileStride);
  TILE_STORE(1, tile + 16, kTileStride);
}

void store_c(const StoreArgs& args) { store_tile<kPairNr>(args); }

}  // namespace
}  // namespace INVAR_LEVEL_NAME

namespace level = INVAR_LEVEL_NAME;

#if defined(INVAR_AMX_MODEL)
#define INVAR_AMX_ENGINE kAmxModelEngine
#define INVAR_AMX_NAME "amx model"
extern const MatmulEngine kAmxModelEngine;
#else
#define INVAR_AMX_ENGINE kAmxEngine
#define INVAR_AMX_NAME "amx"
#endif

const MatmulEngine INVAR_AMX_ENGINE = {INVAR_AMX_NAME,
                                       level::kMr,
                                       level::kPairNr,
                                       level::kStep,
                                       level::kBlock,
                                       sizeof(uint16_t),
                                       512,
                                       level::sliver_bytes,
                                       level::prepare_a,
                                       level::prepare_b,
                                       level::prepare_b,
                                       level::open_panel,
                                       level::multiply,
                                       level::store_c,
                                       0,
                                       nullptr,
                                       level::begin,
                                       level::end};

}  // namespace invar::cpu
