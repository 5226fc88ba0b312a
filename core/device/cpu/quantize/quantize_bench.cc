// Quantising's share of the streaming triad's bandwidth, measured in the same run.
//   bazel run -c opt //core/device/cpu/quantize:quantize_bench -- [threads]
#include "core/device/cpu/quantize/quantize.h"

#include "core/device/cpu/testing/bench.h"
#include "core/numerics/cpu_features.h"

int main(int argc, char** argv) {
  using namespace invar::cpu;  // NOLINT: a program's main
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  TestContext context(threads > 0 ? threads : 1);
  Kernels kernels{};
  fill_quantize(kernels, static_cast<Level>(invar::cpu_level()));
  const int64_t cols = 1536, rows = 16384, count = rows * cols;
  Triad triad(1 << 25);
  const std::vector<float> wide = random_floats(count, 1);
  std::vector<uint16_t> narrow(count), dequantized(count);
  for (int64_t i = 0; i < count; ++i) narrow[i] = invar::bf16_from_f32(wide[i]);
  std::vector<uint8_t> codes(count);
  std::vector<float> scales(count / 128 + rows);
  const struct {
    const char* name;
    int32_t granularity;
    int64_t block_rows, block_cols;
    int power_of_two;
  } cases[] = {{"per tensor", INVAR_SCALE_PER_TENSOR, 0, 0, 0},
               {"per row", INVAR_SCALE_PER_ROW, 0, 0, 0},
               {"1x128 power of two", INVAR_SCALE_BLOCK, 1, 128, 1},
               {"128x1 power of two", INVAR_SCALE_BLOCK, 128, 1, 1},
               {"128x128 power of two", INVAR_SCALE_BLOCK, 128, 128, 1}};
  for (const auto& each : cases) {
    for (const int with_codes : {0, 1}) {
      invar_quantize_args args{};
      args.x_dtype = kBF16, args.format = static_cast<int32_t>(invar::DType::kE4M3FN);
      args.granularity = each.granularity, args.power_of_two = each.power_of_two;
      args.rows = rows, args.cols = cols, args.block_rows = each.block_rows, args.block_cols = each.block_cols;
      args.ldx = args.ld_dequantized = cols, args.x = narrow.data(), args.scale_inv = scales.data();
      if (with_codes != 0) args.codes = codes.data();
      if (with_codes == 0) args.dequantized = dequantized.data();
      const double limit = triad.bandwidth(context, 3);
      kernels.quantize(context.get(), args);
      const Timing timing = time_runs(context, 7, [&] { kernels.quantize(context.get(), args); });
      // A tensor's scale needs the whole tensor read before.
      const double bytes = (2.0 * (each.granularity == INVAR_SCALE_PER_TENSOR ? 2 : 1) + (with_codes != 0 ? 1 : 2)) *
                           static_cast<double>(count);
      std::printf("bf16 -> e4m3 %-20s %-11s %7.2f ms best, %7.2f median, %5.1f GB/s, %3.0f%% of triad\n", each.name,
                  with_codes != 0 ? "codes" : "dequantized", timing.best * 1e3, timing.median * 1e3,
                  bytes / timing.best / 1e9, 100 * bytes / timing.best / limit);
    }
  }
}
