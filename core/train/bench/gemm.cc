// The products of a linear layer: outputs = inputs weight^T, gradient of the inputs, gradient of the weight.
#include <algorithm>

#include "core/device/limits.h"
#include "core/precision/recipe.h"
#include "core/train/bench/measure.h"

namespace invar {

Result<v1::BenchReport> bench_gemm(const v1::BenchConfig& config, const BenchEnvironment& environment) {
  const auto recipe = static_cast<Recipe>(config.recipe());
  if (recipe != Recipe::kFp32 && recipe != Recipe::kBf16) {
    return Error(Code::kInvalidArgument, "bench.recipe",
                 cat("recipe ", recipe_name(recipe), ": products are measured in fp32 or bf16"));
  }
  const auto pool = bench_pool(config, environment);
  INVAR_ASSIGN(const auto device, Device::open("cpu", pool));
  const DType dtype = activation_dtype(recipe);
  const int64_t tokens = config.rows(), outputs = config.cols(), inputs = config.inner();
  INVAR_ASSIGN(const auto x, bench_values(*device, dtype, tokens * inputs, 0));
  INVAR_ASSIGN(const auto weight, bench_values(*device, dtype, outputs * inputs, 1));
  INVAR_ASSIGN(const auto dy, bench_values(*device, dtype, tokens * outputs, 2));
  INVAR_ASSIGN(const auto y, device->allocate(static_cast<size_t>(bytes_of(dtype, tokens * outputs))));
  INVAR_ASSIGN(const auto dx, device->allocate(static_cast<size_t>(bytes_of(dtype, tokens * inputs))));
  INVAR_ASSIGN(const auto dweight, device->allocate(static_cast<size_t>(bytes_of(DType::kF32, outputs * inputs))));

  // As a step packs them: once for many products, so not part of the time here.
  DeviceBuffer packed[2];
  const auto pack = [&](int64_t inner, int64_t cols, bool transpose, DeviceBuffer& into) -> Status {
    if (!device->matmul_gains_from_packing(dtype, transpose)) return {};
    INVAR_ASSIGN(into, device->allocate(device->matmul_packed_bytes(dtype, inner, cols, transpose)));
    return device->matmul_pack(into.data(), weight.data(), dtype, inner, cols, inputs, transpose);
  };
  INVAR_TRY(pack(inputs, outputs, true, packed[0]));
  INVAR_TRY(pack(outputs, inputs, false, packed[1]));

  const auto number = [](DType of) { return static_cast<int32_t>(of); };
  invar_matmul_args args[3] = {};
  for (invar_matmul_args& each : args) {
    each.a_dtype = each.b_dtype = each.c_dtype = number(dtype);
    each.alpha = 1;
  }
  args[0].rows = tokens, args[0].cols = outputs, args[0].inner = inputs, args[0].transpose_b = 1;
  args[0].a = x.data(), args[0].b = weight.data(), args[0].packed_b = packed[0].data(), args[0].c = y.data();
  args[0].lda = args[0].ldb = inputs, args[0].ldc = outputs;
  args[1].rows = tokens, args[1].cols = inputs, args[1].inner = outputs;
  args[1].a = dy.data(), args[1].b = weight.data(), args[1].packed_b = packed[1].data(), args[1].c = dx.data();
  args[1].lda = outputs, args[1].ldb = args[1].ldc = inputs;
  args[2].rows = outputs, args[2].cols = inputs, args[2].inner = tokens, args[2].transpose_a = 1;
  args[2].a = dy.data(), args[2].b = x.data(), args[2].c = dweight.data(), args[2].c_dtype = number(DType::kF32);
  args[2].lda = outputs, args[2].ldb = args[2].ldc = inputs;
  double squares = 0;
  args[2].sum_squares = &squares;

  constexpr const char* kNames[3] = {"forward", "data gradient", "weight gradient"};
  const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(outputs) * static_cast<double>(inputs);
  MachineLimits limits(*pool);
  BenchTimes times[3];
  int64_t repeats = 0;
  for (int i = 0; i < 3; ++i) {
    INVAR_TRY(device->matmul(args[i]));
    const double start = bench_now();
    INVAR_TRY(device->matmul(args[i]));
    repeats = bench_repeats(config, bench_now() - start, 0.3);
    // Samples cost milliseconds: not before every product of microseconds.
    const int64_t every = std::max<int64_t>(1, repeats / 20);
    int64_t done = 0;
    INVAR_ASSIGN(times[i], bench_measure(
                               environment, repeats,
                               [&] {
                                 if (done++ % every == 0) limits.sample_products(dtype);
                               },
                               [&] { return device->matmul(args[i]); }));
  }
  v1::BenchReport report = bench_report(config, *pool, repeats, times[0]);
  report.set_recipe(config.recipe());
  report.set_gflops(flops / times[0].best * 1e-9);
  for (int i = 0; i < 3; ++i) {
    add_bench_limit(report, kNames[i], flops / times[i].best * 1e-9, limits.products(), "GFLOP/s");
    add_bench_limit(report, cat(kNames[i], ", median"), flops / times[i].median * 1e-9, limits.products(), "GFLOP/s");
  }
  return report;
}

}  // namespace invar
