// The wide engine for AVX-512: 12 x 32 micro-tiles in 24 of the 32 registers.
#include <immintrin.h>

#include "core/device/cpu/matmul/engine.h"

namespace invar::cpu {
namespace {

#include "core/device/cpu/matmul/vector_avx512.inc"

constexpr int kMr = 12;
constexpr int kNv = 2;

#include "core/device/cpu/matmul/wide_engine.inc"
//
#include "core/device/cpu/matmul/store_tile.inc"

}  // namespace

const MatmulEngine kAvx512Engine = {"avx512",   kMr,          kNr,       1,         768,
                                    4,          sliver_bytes, prepare_a, prepare_b, pack_panel,
                                    open_panel, multiply,     store,     nullptr,   nullptr};

}  // namespace invar::cpu
