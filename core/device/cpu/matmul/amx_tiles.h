// The tile instructions that the AMX engine uses, by their own names or, with INVAR_AMX_MODEL, as the software
// model of amx_model.h: the same kernel source runs and is tested on machines without AMX.
#pragma once

#if defined(INVAR_AMX_MODEL)

#include "core/device/cpu/matmul/amx_model.h"

#define TILE_CONFIGURE(config) ::invar::cpu::amx_model::configure(config)
#define TILE_RELEASE() ::invar::cpu::amx_model::release()
#define TILE_ZERO(tile) ::invar::cpu::amx_model::zero(tile)
#define TILE_LOAD(tile, base, stride) ::invar::cpu::amx_model::load(tile, base, stride)
#define TILE_STORE(tile, base, stride) ::invar::cpu::amx_model::store(tile, base, stride)
#define TILE_DOT(sum, a, b) ::invar::cpu::amx_model::dot_bf16(sum, a, b)

#else

#include <immintrin.h>

#define TILE_CONFIGURE(config) _tile_loadconfig(config)
#define TILE_RELEASE() _tile_release()
#define TILE_ZERO(tile) _tile_zero(tile)
#define TILE_LOAD(tile, base, stride) _tile_loadd(tile, base, stride)
#define TILE_STORE(tile, base, stride) _tile_stored(tile, base, stride)
#define TILE_DOT(sum, a, b) _tile_dpbf16ps(sum, a, b)

#endif

namespace invar::cpu {

// LDTILECFG's operand (Intel SDM volume 1, 18.2): palette 1, bytes a row and rows of each tile.
struct TileConfig {
  unsigned char palette, start_row, reserved[14];
  unsigned short row_bytes[16];
  unsigned char rows[16];
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace invar::cpu
