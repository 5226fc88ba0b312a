// Each memory-bound operation's share of the streaming triad's bandwidth, measured in the same run.
//   bazel run -c opt //core/device/cpu/memory_bound:memory_bound_bench -- [threads] [operation]
// Bytes are what the operation must move: each operand once.
#include "core/device/cpu/memory_bound/memory_bound.h"

#include <cstring>
#include <functional>
#include <string>

#include "core/device/cpu/testing/bench.h"
#include "core/numerics/cpu_features.h"

namespace invar::cpu {
namespace {

constexpr int kRuns = 7;

class Bench {
 public:
  Bench(int threads, const char* only) : context_(threads), only_(only), triad_(int64_t{1} << 25) {
    fill_memory_bound(kernels, static_cast<Level>(cpu_level()));
    std::printf("%d thread(s); triad %.1f GB/s\n", threads, triad_.bandwidth(context_, kRuns) / 1e9);
  }

  void report(const char* name, double bytes, const std::function<void(Context&)>& function) {
    if (only_ != nullptr && std::strcmp(only_, name) != 0) return;
    const double limit = triad_.bandwidth(context_, 3);
    function(context_.get());
    const int runs = bytes < 1e8 ? 200 : kRuns;
    const Timing timing = time_runs(context_, runs, [&] { function(context_.get()); });
    const double again = triad_.bandwidth(context_, 3);
    const double triad = limit > again ? limit : again;
    std::printf("%-18s %8.3f ms best %8.3f median  %6.1f GB/s  %4.0f%% of triad (median %4.0f%%)\n", name,
                timing.best * 1e3, timing.median * 1e3, bytes / timing.best / 1e9, 100 * bytes / timing.best / triad,
                100 * bytes / timing.median / triad);
  }

  Kernels kernels{};

 private:
  TestContext context_;
  const char* only_;
  Triad triad_;
};

void bench_adamw(Bench& bench) {
  // 272 tensors as in a 135M model, a quarter of its elements: 600 MB, beyond every cache.
  const int64_t count = 32 << 20;
  std::vector<float> master(count, 0.5f), gradient(count, 0.01f), m(count, 0.001f), v(count, 1e-4f);
  std::vector<uint16_t> working(count);
  std::vector<invar_adamw_tensor> tensors;
  const int64_t pieces = 272, each = count / pieces;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t at = i * each;
    tensors.push_back({&master[at], &gradient[at], &m[at], &v[at], &working[at], each, 0.1f});
  }
  invar_adamw_args args{sizeof args, tensors.data(), pieces, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.5, 0.5, 0.25f};
  const double elements = static_cast<double>(pieces * each);
  bench.report("adamw", 30 * elements, [&](Context& context) { bench.kernels.adamw(context, args); });
  for (invar_adamw_tensor& tensor : tensors) tensor.working = nullptr;
  bench.report("adamw_no_copy", 28 * elements, [&](Context& context) { bench.kernels.adamw(context, args); });
}

// Twice: operands beyond every cache, and operands of one layer's activations of a few sequences, which stay in cache.
void bench_elementwise(Bench& bench, int64_t count) {
  std::printf("%.1f M elements\n", static_cast<double>(count) / 1e6);
  std::vector<float> x(count, 1.5f), y(count, 0.5f);
  std::vector<uint16_t> half(count, 0x3f80), other(count, 0x3f80);
  double sum;
  int32_t finite;
  bench.report("sum_squares", 4.0 * count, [&](Context& c) { bench.kernels.sum_squares(c, x.data(), count, &sum); });
  bench.report("all_finite", 4.0 * count, [&](Context& c) { bench.kernels.all_finite(c, x.data(), count, &finite); });
  bench.report("cast_f32_bf16", 6.0 * count,
               [&](Context& c) { bench.kernels.cast(c, half.data(), kBF16, x.data(), kF32, count); });
  bench.report("cast_bf16_f32", 6.0 * count,
               [&](Context& c) { bench.kernels.cast(c, x.data(), kF32, half.data(), kBF16, count); });
  bench.report("add_bf16", 6.0 * count,
               [&](Context& c) { bench.kernels.add(c, half.data(), half.data(), other.data(), kBF16, count); });

  const int64_t cols = 1536, rows = count / (2 * cols);
  invar_swiglu_backward_args swiglu{};
  swiglu.forward = {sizeof swiglu,    kBF16,        rows,           cols, cols, cols, half.data(),
                    &half[count / 2], other.data(), INVAR_GATE_SILU};
  // Results beside the operands: made in place they would shrink to subnormal numbers from run to run.
  uint16_t* results = reinterpret_cast<uint16_t*>(x.data());
  swiglu.d_out = other.data(), swiglu.d_gate = results, swiglu.d_up = results + count / 2;
  bench.report("swiglu", 3.0 * count, [&](Context& c) { bench.kernels.swiglu(c, swiglu.forward); });
  bench.report("swiglu_backward", 5.0 * count, [&](Context& c) { bench.kernels.swiglu_backward(c, swiglu); });

  const int64_t heads = 12, dim = 64, tokens = count / (heads * dim);
  std::vector<int32_t> positions(tokens);
  for (int64_t t = 0; t < tokens; ++t) positions[t] = static_cast<int32_t>(t % 2048);
  std::vector<float> table(2048 * dim / 2, 0.5f);
  invar_rope_args rope{sizeof rope,  kBF16,           0, tokens, heads, dim, heads * dim, half.data(), table.data(),
                       table.data(), positions.data()};
  bench.report("rope", 4.0 * count, [&](Context& c) { bench.kernels.rope(c, rope); });

  const int64_t norm_cols = 576, norm_rows = count / norm_cols;
  std::vector<float> gain(norm_cols, 1.f), inv_rms(norm_rows), dgain(norm_cols);
  invar_rmsnorm_args norm{};
  norm.x_dtype = norm.add_dtype = norm.y_dtype = kBF16, norm.rows = norm_rows, norm.cols = norm_cols;
  norm.x = norm.sum_out = half.data(), norm.add = other.data(), norm.gain = gain.data(), norm.eps = 1e-5f;
  norm.y = x.data(), norm.inv_rms = inv_rms.data();
  bench.report("rmsnorm_add", 8.0 * count, [&](Context& c) { bench.kernels.rmsnorm(c, norm); });
  invar_rmsnorm_backward_args back{};
  back.dy_dtype = back.x_dtype = kBF16, back.rows = norm_rows, back.cols = norm_cols, back.accumulate_dx = 1;
  back.dy = other.data(), back.x = half.data(), back.gain = gain.data(), back.inv_rms = inv_rms.data();
  back.dx = x.data(), back.dx_copy = nullptr, back.dgain = dgain.data();
  bench.report("rmsnorm_backward", 12.0 * count, [&](Context& c) { bench.kernels.rmsnorm_backward(c, back); });
}

}  // namespace
}  // namespace invar::cpu

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  invar::cpu::Bench bench(threads > 0 ? threads : 1, argc > 2 ? argv[2] : nullptr);
  invar::cpu::bench_adamw(bench);
  invar::cpu::bench_elementwise(bench, int64_t{48} << 20);
  invar::cpu::bench_elementwise(bench, 576 * 512);
}
