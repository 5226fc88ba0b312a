#include "core/device/cpu/matmul/amx_model.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "core/device/cpu/matmul/amx_tiles.h"

namespace invar::cpu::amx_model {
namespace {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;

struct Tiles {
  TileConfig config;  // palette 0: not configured
  unsigned char data[kTiles][kRows][kRowBytes];
};

thread_local Tiles tiles;

// What the processor answers with #UD.
void require(bool condition) {
  if (!condition) std::abort();
}

int rows_of(int tile) { return tiles.config.rows[tile]; }
int bytes_of(int tile) { return tiles.config.row_bytes[tile]; }

void require_tile(int tile) {
  require(tiles.config.palette == 1 && tile >= 0 && tile < kTiles && rows_of(tile) > 0 && bytes_of(tile) > 0);
}

float flushed(float value) { return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value; }

float element(int tile, int row, int index) {
  uint16_t half;
  std::memcpy(&half, tiles.data[tile][row] + 2 * index, sizeof(half));
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return flushed(value);
}

}  // namespace

void configure(const void* config) {
  std::memcpy(&tiles.config, config, sizeof(tiles.config));
  require(tiles.config.palette <= 1);
  for (int tile = 0; tile < 16; ++tile) {
    require(rows_of(tile) <= kRows && bytes_of(tile) <= kRowBytes && (tile < kTiles || rows_of(tile) == 0));
  }
  // The real instruction zeroes tiles; garbage finds a kernel that relies on that or on older contents.
  std::memset(tiles.data, 0xff, sizeof(tiles.data));
}

void release() { tiles.config.palette = 0; }

bool is_configured() { return tiles.config.palette != 0; }

void zero(int tile) {
  require_tile(tile);
  std::memset(tiles.data[tile], 0, sizeof(tiles.data[tile]));
}

void load(int tile, const void* base, long stride) {
  require_tile(tile);
  std::memset(tiles.data[tile], 0, sizeof(tiles.data[tile]));
  for (int row = 0; row < rows_of(tile); ++row) {
    std::memcpy(tiles.data[tile][row], static_cast<const char*>(base) + row * stride,
                static_cast<size_t>(bytes_of(tile)));
  }
}

void store(int tile, void* base, long stride) {
  require_tile(tile);
  for (int row = 0; row < rows_of(tile); ++row) {
    std::memcpy(static_cast<char*>(base) + row * stride, tiles.data[tile][row], static_cast<size_t>(bytes_of(tile)));
  }
}

void dot_bf16(int sum, int a, int b) {
  require_tile(sum);
  require_tile(a);
  require_tile(b);
  require(sum != a && sum != b && a != b);
  require(rows_of(sum) == rows_of(a) && bytes_of(sum) == bytes_of(b) && bytes_of(a) / 4 == rows_of(b));
  float b_values[kRows][kRowBytes / 2];
  for (int pair = 0; pair < rows_of(b); ++pair) {
    for (int i = 0; i < bytes_of(b) / 2; ++i) b_values[pair][i] = element(b, pair, i);
  }
  for (int row = 0; row < rows_of(sum); ++row) {
    float sums[kRowBytes / 2] = {};  // even and odd sums of each column, side by side
    for (int pair = 0; pair < bytes_of(a) / 4; ++pair) {
      const float even = element(a, row, 2 * pair), odd = element(a, row, 2 * pair + 1);
      for (int i = 0; i < bytes_of(b) / 2; i += 2) {
        sums[i] = flushed(std::fma(even, b_values[pair][i], sums[i]));
        sums[i + 1] = flushed(std::fma(odd, b_values[pair][i + 1], sums[i + 1]));
      }
    }
    for (int col = 0; col < bytes_of(sum) / 4; ++col) {
      float value;
      std::memcpy(&value, tiles.data[sum][row] + 4 * col, sizeof(value));
      value = flushed(flushed(value) + flushed(sums[2 * col] + sums[2 * col + 1]));
      std::memcpy(tiles.data[sum][row] + 4 * col, &value, sizeof(value));
    }
  }
}

}  // namespace invar::cpu::amx_model
