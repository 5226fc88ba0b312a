#include "core/device/cpu/memory_bound/memory_bound.h"
#include "core/device/cpu/simd/vector.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

template <typename Table, typename Out>
void look_up(Context& context, const invar_embedding_args& args) {
  const F32 scale = set(args.scale);
  for_pieces(context, args.tokens, rows_in_chunk(args.cols), [&](int64_t first, int64_t last) {
    for (int64_t token = first; token < last; ++token) {
      const Table* from = static_cast<const Table*>(args.table) + args.ids[token] * args.cols;
      Out* to = static_cast<Out*>(args.out) + token * args.cols;
      for_vectors(args.cols, [&](int64_t i, auto part) { store_act(to + i, load(from + i, part) * scale, part); });
    }
  });
}

// A task owns the ids of one residue class and one block of columns, so every element has one owner, which meets
// its tokens in order.
constexpr int64_t kClasses = 16;
constexpr int64_t kBlockCols = 512;

template <typename Out>
void add_gradients(Context& context, const invar_embedding_args& args) {
  const F32 scale = set(args.scale);
  parallel_for(context, kClasses * ceil_div(args.cols, kBlockCols), [&](int64_t task, int32_t) {
    const int64_t col = task / kClasses * kBlockCols, cols = smaller(kBlockCols, args.cols - col);
    for (int64_t token = 0; token < args.tokens; ++token) {
      const int64_t id = args.ids[token];
      if (id % kClasses != task % kClasses) continue;
      const Out* from = static_cast<const Out*>(args.out) + token * args.cols + col;
      float* to = args.d_table + id * args.cols + col;
      for_vectors(cols, [&](int64_t i, auto part) {
        store_act(to + i, fma(load(from + i, part), scale, load(to + i, part)), part);
      });
    }
  });
}

}  // namespace

int32_t embedding(Context& context, const invar_embedding_args& args) {
  if (args.table_dtype == kF32 && args.out_dtype == kF32) {
    look_up<float, float>(context, args);
  } else if (args.table_dtype == kF32) {
    look_up<float, uint16_t>(context, args);
  } else if (args.out_dtype == kF32) {
    look_up<uint16_t, float>(context, args);
  } else {
    look_up<uint16_t, uint16_t>(context, args);
  }
  return kOk;
}

int32_t embedding_backward(Context& context, const invar_embedding_args& args) {
  if (args.out_dtype == kF32) {
    add_gradients<float>(context, args);
  } else {
    add_gradients<uint16_t>(context, args);
  }
  return kOk;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
