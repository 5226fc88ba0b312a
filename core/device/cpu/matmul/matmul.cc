#include "core/device/cpu/matmul/matmul.h"

#include <unistd.h>

#include "core/device/cpu/level.h"

namespace invar::cpu {
namespace {

// Elements of an operand that are prepared in a cycle. It chooses between tasks, never between results.
constexpr double kPrepareRate = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t bytes_of_element(int32_t dtype) { return dtype == kF32 ? 4 : 2; }

// Bytes of a core's second-level cache.
int64_t level2_bytes() {
  static const int64_t bytes = [] {
    const long found = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return found > 0 ? static_cast<int64_t>(found) : int64_t{1} << 20;
  }();
  return bytes;
}

// How a product is cut. The inner blocks decide the order of additions, so they depend on `inner` alone;
// the tasks do not, so they may depend on the number of threads and the cache.
struct Plan {
  int64_t inner_blocks, block;        // inner elements a block, a multiple of k_step
  int64_t slivers, panels;            // of the whole C
  int64_t task_slivers, task_panels;  // of one task
  int64_t row_tasks, col_tasks;
};

// Chooses equal tasks whose operands stay in the second-level cache, by the time of the busiest thread: larger
// tasks reuse what they prepare, more tasks keep every thread busy.
void choose_tasks(const MatmulEngine& engine, int32_t threads, Plan& plan) {
  const int64_t depth = most(1, plan.block);
  const int64_t a_budget = level2_bytes() * 5 / 8, tile_budget = level2_bytes() * 3 / 8;
  const int64_t sliver_bytes = engine.mr * depth * engine.prepared_bytes;
  const int64_t most_slivers = most(1, (plan.inner_blocks > 1 ? a_budget * 2 / 3 : a_budget) / sliver_bytes);
  constexpr int64_t kTried = 12;  // ways to cut each dimension
  double best = 0;
  const int64_t fewest_rows = ceil_div(plan.slivers, most_slivers);
  for (int64_t row_parts = fewest_rows; row_parts < fewest_rows + kTried && row_parts <= plan.slivers; ++row_parts) {
    const int64_t slivers = ceil_div(plan.slivers, row_parts);
    int64_t most_panels = plan.panels;
    if (plan.inner_blocks > 1) most_panels = most(1, tile_budget / (slivers * engine.mr * engine.nr * 4));
    const int64_t fewest_cols = ceil_div(plan.panels, most_panels);
    for (int64_t col_parts = fewest_cols; col_parts < fewest_cols + kTried && col_parts <= plan.panels; ++col_parts) {
      const int64_t panels = ceil_div(plan.panels, col_parts);
      const int64_t tasks = ceil_div(plan.slivers, slivers) * ceil_div(plan.panels, panels);
      const double rows = static_cast<double>(slivers * engine.mr), cols = static_cast<double>(panels * engine.nr);
      const double task = rows * cols / engine.multiply_rate + (rows + cols) / kPrepareRate;
      // Threads are not equally fast while the host shares the cores: the tail of a task counts a little more.
      const double time = (static_cast<double>(ceil_div(tasks, threads)) + (threads > 1 ? 0.15 : 0)) * task;
      if (best == 0 || time < best) {
        best = time;
        plan.task_slivers = slivers;
        plan.task_panels = panels;
      }
    }
  }
  plan.row_tasks = ceil_div(plan.slivers, plan.task_slivers);
  plan.col_tasks = ceil_div(plan.panels, plan.task_panels);
}

Plan make_plan(const MatmulEngine& engine, int32_t threads, int64_t rows, int64_t cols, int64_t inner) {
  Plan plan{};
  plan.inner_blocks = ceil_div(inner, engine.k_block);
  if (plan.inner_blocks != 0) plan.block = round_up(ceil_div(inner, plan.inner_blocks), engine.k_step);
  plan.slivers = ceil_div(rows, engine.mr);
  plan.panels = ceil_div(cols, engine.nr);
  choose_tasks(engine, threads, plan);
  return plan;
}

// A worker's scratch: [A block][one B panel][FP32 tiles].
struct Layout {
  size_t a, b, tiles;
  size_t total() const { return a + b + tiles; }
};

Layout make_layout(const MatmulEngine& engine, const Plan& plan, bool transpose_a) {
  Layout layout{};
  const auto line = [](size_t bytes) { return (bytes + 127) / 64 * 64; };
  layout.a = line(static_cast<size_t>(plan.task_slivers) * engine.sliver_bytes(plan.block, transpose_a));
  layout.b = line(static_cast<size_t>(plan.block) * engine.nr * engine.prepared_bytes);
  const int64_t kept = plan.inner_blocks > 1 ? plan.task_slivers * plan.task_panels : 1;
  layout.tiles = line(static_cast<size_t>(kept) * engine.mr * engine.nr * sizeof(float));
  return layout;
}

// One product being computed; a task is a rectangle of its slivers and panels.
struct Product {
  const MatmulEngine& engine;
  const invar_matmul_args& args;
  const Plan& plan;
  const Layout& layout;
  double* squares;  // [slivers, panels] or NULL

  const char* a_at(int64_t row, int64_t k) const {
    const int64_t offset = args.transpose_a ? k * args.lda + row : row * args.lda + k;
    return static_cast<const char*>(args.a) + offset * bytes_of_element(args.a_dtype);
  }

  bool reads_packed() const {
    return args.packed_b != nullptr && args.rows <= engine.packed_rows && args.b_dtype == kBF16 && !args.transpose_a;
  }

  const char* packed_at(int64_t panel, int64_t first) const {
    const int64_t offset = (panel * round_up(args.inner, engine.k_step) + first) * engine.nr;
    return static_cast<const char*>(args.packed_b) + offset * bytes_of_element(args.b_dtype);
  }

  // The prepared panel for inner elements [first, first + k).
  const void* panel_at(int64_t panel, int64_t first, int64_t k, void* to) const {
    if (args.packed_b != nullptr) return engine.open_panel(to, packed_at(panel, first), args.b_dtype, k);
    const int64_t col = panel * engine.nr;
    const int64_t offset = args.transpose_b ? col * args.ldb + first : first * args.ldb + col;
    const Operand b = {static_cast<const char*>(args.b) + offset * bytes_of_element(args.b_dtype), args.ldb,
                       args.b_dtype, args.transpose_b};
    engine.prepare_b(to, b, k, least(engine.nr, args.cols - col));
    return to;
  }

  // Brings what store_tile will touch into the cache while the tile is computed.
  void prefetch_tile(int64_t sliver, int64_t panel) const {
    const int64_t row = sliver * engine.mr, col = panel * engine.nr;
    const int64_t rows = least(engine.mr, args.rows - row), cols = least(engine.nr, args.cols - col);
    const int64_t element = bytes_of_element(args.c_dtype);
    for (int64_t r = row; r < row + rows; ++r) {
      const char* c = static_cast<const char*>(args.c) + (r * args.ldc + col) * element;
      for (int64_t byte = 0; byte < cols * element; byte += 64) __builtin_prefetch(c + byte, 1);
    }
  }

  void store_tile(const float* tile, int64_t sliver, int64_t panel) const {
    const int64_t row = sliver * engine.mr, col = panel * engine.nr;
    StoreArgs store{};
    store.tile = tile;
    store.rows = least(engine.mr, args.rows - row);
    store.cols = least(engine.nr, args.cols - col);
    store.alpha = args.alpha;
    store.c = static_cast<char*>(args.c) + (row * args.ldc + col) * bytes_of_element(args.c_dtype);
    store.c_dtype = args.c_dtype;
    store.ldc = args.ldc;
    store.accumulate = args.accumulate;
    if (args.add != nullptr) {
      store.add = static_cast<const char*>(args.add) + (row * args.ld_add + col) * bytes_of_element(args.add_dtype);
      store.add_dtype = args.add_dtype;
      store.ld_add = args.ld_add;
    }
    if (squares != nullptr) store.sum_squares = squares + sliver * plan.panels + panel;
    engine.store(store);
  }

  void run_task(int64_t task, char* scratch) const {
    // Neighbouring tasks share their columns: weights are read once while they are in the shared cache.
    const int64_t first_sliver = task % plan.row_tasks * plan.task_slivers;
    const int64_t first_panel = task / plan.row_tasks * plan.task_panels;
    const int64_t slivers = least(plan.task_slivers, plan.slivers - first_sliver);
    const int64_t panels = least(plan.task_panels, plan.panels - first_panel);
    if (slivers <= 0 || panels <= 0) return;
    const int64_t first_row = first_sliver * engine.mr;
    const int64_t rows = least(slivers * engine.mr, args.rows - first_row);
    char* const a = scratch;
    char* const b = scratch + layout.a;
    float* const tiles = reinterpret_cast<float*>(scratch + layout.a + layout.b);

    for (int64_t block = 0; block < plan.inner_blocks; ++block) {
      const int64_t first = block * plan.block;
      const int64_t k = least(plan.block, args.inner - first);
      const bool is_last = block + 1 == plan.inner_blocks;
      const Operand operand = {a_at(first_row, first), args.lda, args.a_dtype, args.transpose_a};
      engine.prepare_a(a, operand, rows, k);
      const size_t sliver_bytes = engine.sliver_bytes(k, args.transpose_a);
      for (int64_t panel = 0; panel < panels; ++panel) {
        if (reads_packed()) {
          // One sliver holds all rows.
          float* tile = tiles + (plan.inner_blocks > 1 ? panel : 0) * engine.mr * engine.nr;
          engine.multiply_packed(a, packed_at(first_panel + panel, first), k, rows, tile, block != 0);
          if (is_last) store_tile(tile, first_sliver, first_panel + panel);
          continue;
        }
        const void* prepared = panel_at(first_panel + panel, first, k, b);
        for (int64_t sliver = 0; sliver < slivers; ++sliver) {
          const int64_t kept = plan.inner_blocks > 1 ? panel * slivers + sliver : 0;
          float* tile = tiles + kept * engine.mr * engine.nr;
          if (is_last) prefetch_tile(first_sliver + sliver, first_panel + panel);
          engine.multiply(a + static_cast<size_t>(sliver) * sliver_bytes, args.transpose_a, prepared, k,
                          least(engine.mr, rows - sliver * engine.mr), tile, block != 0);
          if (is_last) store_tile(tile, first_sliver + sliver, first_panel + panel);
        }
      }
    }
    if (plan.inner_blocks == 0) {
      for (int64_t i = 0; i < engine.mr * engine.nr; ++i) tiles[i] = 0;
      for (int64_t panel = 0; panel < panels; ++panel) {
        for (int64_t sliver = 0; sliver < slivers; ++sliver) {
          store_tile(tiles, first_sliver + sliver, first_panel + panel);
        }
      }
    }
  }
};

size_t kernel_packed_bytes(Context& context, int32_t dtype, int64_t inner, int64_t cols, int32_t) {
  return packed_bytes(engine_for(context.level, dtype), dtype, inner, cols);
}

int32_t kernel_pack(Context& context, void* packed, const void* b, int32_t dtype, int64_t inner, int64_t cols,
                    int64_t ldb, int32_t transpose_b) {
  return pack_with(engine_for(context.level, dtype), context, packed, {b, ldb, dtype, transpose_b}, inner, cols);
}

int32_t kernel_matmul(Context& context, const invar_matmul_args& args) {
  return matmul_with(engine_for(context.level, args.a_dtype), context, args);
}

}  // namespace

size_t packed_bytes(const MatmulEngine& engine, int32_t dtype, int64_t inner, int64_t cols) {
  return static_cast<size_t>(round_up(cols, engine.nr) * round_up(inner, engine.k_step) * bytes_of_element(dtype));
}

int32_t pack_with(const MatmulEngine& engine, Context& context, void* packed, const Operand& b, int64_t inner,
                  int64_t cols) {
  const int64_t element = bytes_of_element(b.dtype);
  const int64_t panel_bytes = round_up(inner, engine.k_step) * engine.nr * element;
  parallel_for(context, ceil_div(cols, engine.nr), [&](int64_t panel, int32_t) {
    const int64_t col = panel * engine.nr;
    Operand part = b;
    part.data = static_cast<const char*>(b.data) + (b.is_transposed ? col * b.ld : col) * element;
    engine.pack_panel(static_cast<char*>(packed) + panel * panel_bytes, part, inner, least(engine.nr, cols - col));
  });
  return kOk;
}

int32_t matmul_with(const MatmulEngine& engine, Context& context, const invar_matmul_args& args) {
  if (args.sum_squares != nullptr) *args.sum_squares = 0;
  if (args.rows == 0 || args.cols == 0) return kOk;
  const Plan plan = make_plan(engine, context.threads, args.rows, args.cols, args.inner);
  const Layout layout = make_layout(engine, plan, args.transpose_a != 0);
  if (!reserve_worker_scratch(context, kScratchMatmul, layout.total())) return kResourceExhausted;
  const int64_t partial_sums = plan.slivers * plan.panels;
  if (args.sum_squares != nullptr &&
      !reserve_shared_scratch(context, kScratchMatmul, static_cast<size_t>(partial_sums) * sizeof(double))) {
    return kResourceExhausted;
  }
  double* squares =
      args.sum_squares != nullptr ? static_cast<double*>(shared_scratch(context, kScratchMatmul)) : nullptr;
  const Product product = {engine, args, plan, layout, squares};
  parallel_for(context, plan.row_tasks * plan.col_tasks, [&](int64_t task, int32_t worker) {
    if (engine.begin != nullptr) engine.begin();
    product.run_task(task, static_cast<char*>(worker_scratch(context, kScratchMatmul, worker)));
    if (engine.end != nullptr) engine.end();
  });
  for (int64_t i = 0; squares != nullptr && i < partial_sums; ++i) *args.sum_squares += squares[i];
  return kOk;
}

const MatmulEngine& engine_for(Level level, int32_t dtype) {
#if defined(__x86_64__)
  if (level == Level::kAmx && dtype == kBF16) return kAmxEngine;
  if (level == Level::kAvx512Bf16 && dtype == kBF16 && pair_products_are_fast()) return kDotEngine;
  if (level >= Level::kAvx512) return avx512::kWideEngine;
  if (level == Level::kAvx2) return avx2::kWideEngine;
#endif
  static_cast<void>(level);
  static_cast<void>(dtype);
  return portable::kWideEngine;
}

void fill_matmul(Kernels& kernels) {
  kernels.matmul_packed_bytes = kernel_packed_bytes;
  kernels.matmul_pack = kernel_pack;
  kernels.matmul = kernel_matmul;
}

}  // namespace invar::cpu
