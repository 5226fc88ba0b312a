#include "core/device/cpu/memory_bound/memory_bound.h"
#include "core/device/cpu/simd/vector.h"

namespace invar::cpu::INVAR_LEVEL_NAME {
namespace {

// A row's sum of products. Rows stored as F32 are summed in FP64: two accumulators for the lower and upper lanes.
template <typename X>
struct RowSum;

template <>
struct RowSum<float> {
  INVAR_INLINE void add_product(F32 a, F32 b) {
    lower = fma(lower_f64(a), lower_f64(b), lower);
    upper = fma(upper_f64(a), upper_f64(b), upper);
  }
  INVAR_INLINE double total() const { return add_lanes(lower + upper); }
  F64 lower{}, upper{};
};

// Of BF16 rows each lane's FP32 sum is short (cols / kLanes terms) and far more exact than the terms.
template <>
struct RowSum<uint16_t> {
  INVAR_INLINE void add_product(F32 a, F32 b) { sum = fma(a, b, sum); }
  INVAR_INLINE double total() const { return static_cast<double>(add_lanes(sum)); }
  F32 sum{};
};

// Stores the residual sum and gives it as it will be read back.
template <typename Part>
INVAR_INLINE F32 store_rounded(float* to, F32 value, Part part) {
  store(to, value, part);
  return value;
}
template <typename Part>
INVAR_INLINE F32 store_rounded(uint16_t* to, F32 value, Part part) {
  const U16 narrowed = narrow_act(value);
  store_narrow(to, narrowed, part);
  return widen(narrowed);
}

// Where row `row` begins.
INVAR_INLINE int64_t start(int64_t row, int64_t cols, int64_t groups, int64_t ld) {
  return groups == 0 ? row * cols : row / groups * ld + row % groups * cols;
}

template <typename X, typename Add, typename Y>
void forward_rows(Context& context, const invar_rmsnorm_args& args) {
  const int64_t cols = args.cols;
  const F32 offset = set(args.gain_offset);
  for_pieces(context, args.rows, rows_in_chunk(cols), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const X* x = static_cast<const X*>(args.x) + start(row, cols, args.groups, args.ldx);
      const Add* added = args.add == nullptr ? nullptr : static_cast<const Add*>(args.add) + row * cols;
      X* sum_out = args.sum_out == nullptr ? nullptr : static_cast<X*>(args.sum_out) + row * cols;
      Y* y = static_cast<Y*>(args.y) + start(row, cols, args.groups, args.ldy);
      RowSum<X> squares;
      for_vectors(cols, [&](int64_t i, auto part) {
        F32 value = load(x + i, part);
        if (added != nullptr) value += load(added + i, part);
        if (sum_out != nullptr) value = store_rounded(sum_out + i, value, part);
        squares.add_product(value, value);
      });
      const double mean = squares.total() / static_cast<double>(cols);
      const float inv_rms = static_cast<float>(1 / __builtin_sqrt(mean + static_cast<double>(args.eps)));
      if (args.inv_rms != nullptr) args.inv_rms[row] = inv_rms;
      const X* sum = sum_out == nullptr ? x : sum_out;
      for_vectors(cols, [&](int64_t i, auto part) {
        store_act(y + i, load(sum + i, part) * inv_rms * (load(args.gain + i, part) + offset), part);
      });
    }
  });
}

// dgain's partial sums lie at fixed row blocks: at least 16 rows each, at most 64 blocks.
struct RowBlocks {
  explicit RowBlocks(int64_t rows) : size(larger(16, ceil_div(rows, 64))), count(ceil_div(rows, size)) {}
  int64_t size, count;
};

template <typename Dy, typename X>
void backward_rows(Context& context, const invar_rmsnorm_backward_args& args, float* partials) {
  const int64_t cols = args.cols;
  const F32 offset = set(args.gain_offset);
  const RowBlocks blocks(args.rows);
  parallel_for(context, blocks.count, [&](int64_t block, int32_t) {
    float* dgain = partials == nullptr ? nullptr : partials + block * cols;
    if (dgain != nullptr) memset(dgain, 0, static_cast<size_t>(cols) * sizeof(float));
    for (int64_t row = block * blocks.size; row < smaller(args.rows, (block + 1) * blocks.size); ++row) {
      const Dy* dy = static_cast<const Dy*>(args.dy) + start(row, cols, args.groups, args.lddy);
      const X* x = static_cast<const X*>(args.x) + start(row, cols, args.groups, args.ldx);
      const int64_t out = start(row, cols, args.groups, args.lddx);
      float* dx = args.dx == nullptr ? nullptr : args.dx + out;
      uint16_t* copy = args.dx_copy == nullptr ? nullptr : static_cast<uint16_t*>(args.dx_copy) + out;
      const F32 inv_rms = set(args.inv_rms[row]);
      RowSum<X> projection;
      for_vectors(cols, [&](int64_t i, auto part) {
        const F32 dy_at = load(dy + i, part), x_at = load(x + i, part);
        projection.add_product(dy_at * (load(args.gain + i, part) + offset), x_at);
        if (dgain != nullptr) store(dgain + i, fma(dy_at, x_at * inv_rms, load(dgain + i, part)), part);
      });
      const double r = static_cast<double>(args.inv_rms[row]);
      const F32 pull = set(static_cast<float>(projection.total() * r * r * r / static_cast<double>(cols)));
      for_vectors(cols, [&](int64_t i, auto part) {
        const F32 scaled = load(dy + i, part) * (load(args.gain + i, part) + offset) * inv_rms;
        F32 value = fnma(pull, load(x + i, part), scaled);
        if (args.accumulate_dx != 0) value += load(dx + i, part);
        if (dx != nullptr) store(dx + i, value, part);
        if (copy != nullptr) store_act(copy + i, value, part);
      });
    }
  });
  if (partials == nullptr) return;
  for (int64_t i = 0; i < cols; ++i) {
    double sum = static_cast<double>(args.dgain[i]);
    for (int64_t block = 0; block < blocks.count; ++block) sum += static_cast<double>(partials[block * cols + i]);
    args.dgain[i] = static_cast<float>(sum);
  }
}

template <typename X, typename Add>
void forward_by_y(Context& context, const invar_rmsnorm_args& args) {
  if (args.y_dtype == kF32) {
    forward_rows<X, Add, float>(context, args);
  } else {
    forward_rows<X, Add, uint16_t>(context, args);
  }
}

}  // namespace

int32_t rmsnorm(Context& context, const invar_rmsnorm_args& args) {
  const bool adds_f32 = args.add == nullptr || args.add_dtype == kF32;
  if (args.x_dtype == kF32 && adds_f32) {
    forward_by_y<float, float>(context, args);
  } else if (args.x_dtype == kF32) {
    forward_by_y<float, uint16_t>(context, args);
  } else if (adds_f32) {
    forward_by_y<uint16_t, float>(context, args);
  } else {
    forward_by_y<uint16_t, uint16_t>(context, args);
  }
  return kOk;
}

int32_t rmsnorm_backward(Context& context, const invar_rmsnorm_backward_args& args) {
  float* partials = nullptr;
  if (args.dgain != nullptr) {
    const int64_t elements = RowBlocks(args.rows).count * args.cols;
    if (!reserve_shared_scratch(context, kScratchOperation, static_cast<size_t>(elements) * sizeof(float))) {
      return kResourceExhausted;
    }
    partials = static_cast<float*>(shared_scratch(context, kScratchOperation));
  }
  if (args.rows == 0) return kOk;
  if (args.dy_dtype == kF32 && args.x_dtype == kF32) {
    backward_rows<float, float>(context, args, partials);
  } else if (args.dy_dtype == kF32) {
    backward_rows<float, uint16_t>(context, args, partials);
  } else if (args.x_dtype == kF32) {
    backward_rows<uint16_t, float>(context, args, partials);
  } else {
    backward_rows<uint16_t, uint16_t>(context, args, partials);
  }
  return kOk;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
