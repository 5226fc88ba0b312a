// The wide engine for any processor: four floats at a time, as the compiler can.
#include "core/device/cpu/matmul/engine.h"

namespace invar::cpu {
namespace {

struct V {
  static constexpr int kWidth = 4;
  float lane[kWidth];

  static V load(const float* from) {
    V v;
    __builtin_memcpy(v.lane, from, sizeof(v.lane));
    return v;
  }
  void store(float* to) const { __builtin_memcpy(to, lane, sizeof(lane)); }
  static V zero() { return set1(0); }
  static V set1(float x) { return {{x, x, x, x}}; }
  static V multiply(V a, V b) {
    for (int i = 0; i < kWidth; ++i) a.lane[i] *= b.lane[i];
    return a;
  }
  static V plus(V a, V b) {
    for (int i = 0; i < kWidth; ++i) a.lane[i] += b.lane[i];
    return a;
  }
  static V multiply_add(V a, V b, V c) { return plus(multiply(a, b), c); }
  static V widen(const uint16_t* from);
  void narrow(uint16_t* to) const;
  static void transpose(V (&rows)[kWidth]) {
    for (int r = 0; r < kWidth; ++r) {
      for (int c = 0; c < r; ++c) {
        const float kept = rows[r].lane[c];
        rows[r].lane[c] = rows[c].lane[r];
        rows[c].lane[r] = kept;
      }
    }
  }
  struct Doubles {
    double sum = 0;
    void add_square(V v) {
      for (int i = 0; i < kWidth; ++i) sum += static_cast<double>(v.lane[i]) * v.lane[i];
    }
    double total() const { return sum; }
  };
};

constexpr int kMr = 4;
constexpr int kNv = 2;

#include "core/device/cpu/matmul/wide_engine.inc"

V V::widen(const uint16_t* from) {
  V v;
  for (int i = 0; i < kWidth; ++i) v.lane[i] = widen_one(from[i]);
  return v;
}

void V::narrow(uint16_t* to) const {
  for (int i = 0; i < kWidth; ++i) to[i] = narrow_one(lane[i]);
}

#include "core/device/cpu/matmul/store_tile.inc"

}  // namespace

const MatmulEngine kPortableEngine = {"portable", kMr,          kNr,       1,         512,
                                      4,          sliver_bytes, prepare_a, prepare_b, pack_panel,
                                      open_panel, multiply,     store,     nullptr,   nullptr};

}  // namespace invar::cpu
