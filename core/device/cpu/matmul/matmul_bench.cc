// Products of a training step of the SmolLM2-135M shape (and a tiny one): GFLOP/s, the share of the limit measured
// in the same run, and oneDNN beside it.
//
//   matmul_bench [--threads 1,2] [--tokens 512,2048] [--dtype bf16|f32] [--level NAME] [--only TEXT] [--no-onednn]
//
// The limit is the FP32 FMA peak of one core times the threads (AMX apart, nothing here is faster); it is measured
// beside every call, and the share is the median of the quotients. One thread is timed by its processor time.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/device/cpu/bench/onednn_matmul.h"
#include "core/device/cpu/bench/peak.h"
#include "core/device/cpu/level.h"
#include "core/device/cpu/matmul/matmul.h"
#include "core/device/cpu/testing/test_context.h"

namespace invar::cpu {
namespace {

struct Options {
  std::vector<int64_t> threads = {1, 2}, tokens = {512, 2048};
  std::vector<int32_t> dtypes = {kBF16, kF32};
  Level level = usable_level();
  std::string only;
  bool onednn = true;
  double seconds = 0.25;  // per measurement
};

struct Case {
  std::string name;
  int64_t rows, cols, inner;
  bool transpose_a, transpose_b, packed;
  int32_t c_dtype;
};

std::vector<Case> cases(int64_t tokens, int32_t dtype) {
  struct Linear {
    const char* name;
    int64_t in, out;
  };
  std::vector<Case> all;
  for (const Linear& w : {Linear{"q,o", 576, 576}, Linear{"k,v", 576, 192}, Linear{"gate,up", 576, 1536},
                          Linear{"down", 1536, 576}, Linear{"tiny mlp", 256, 688}}) {
    const std::string name = w.name;
    all.push_back({name + " forward", tokens, w.out, w.in, false, true, true, dtype});
    all.push_back({name + " dgrad", tokens, w.in, w.out, false, false, true, dtype});
    all.push_back({name + " wgrad", w.out, w.in, tokens, true, false, false, kF32});
  }
  all.push_back({"head forward", tokens, 49152, 576, false, true, true, dtype});
  all.push_back({"head dgrad", tokens, 576, 49152, false, false, true, dtype});
  all.push_back({"head wgrad", 49152, 576, tokens, true, false, false, kF32});
  return all;
}

struct Rate {
  double best = 0, median = 0, share = 0;
};

template <typename Call>
Rate measure(double flops, double seconds, int threads, const Call& call) {
  call();
  std::vector<double> rates, shares;
  const double start = seconds_now();
  double (*const clock)() = threads == 1 ? thread_seconds : seconds_now;
  double before = fma_now(2e-4, clock);
  while (rates.size() < 3 || seconds_now() - start < seconds) {
    const double begin = clock();
    call();
    rates.push_back(flops / (clock() - begin) / 1e9);
    const double after = fma_now(2e-4, clock);
    shares.push_back(rates.back() / (std::max(before, after) * threads));
    before = after;
  }
  std::sort(rates.begin(), rates.end());
  std::sort(shares.begin(), shares.end());
  return {rates.back(), rates[rates.size() / 2], shares[shares.size() / 2]};
}

void run_case(const Options& options, const Case& c, int32_t dtype, int threads) {
  TestContext context(threads, options.level);
  const MatmulEngine& engine = engine_for(options.level, dtype);
  Stored a(dtype, random_floats(static_cast<size_t>(c.rows * c.inner), 1));
  Stored b(dtype, random_floats(static_cast<size_t>(c.inner * c.cols), 2, 0.02f));
  Stored out(c.c_dtype, static_cast<size_t>(c.rows * c.cols));
  invar_matmul_args args{};
  args.struct_size = sizeof(args);
  args.a_dtype = args.b_dtype = dtype;
  args.c_dtype = c.c_dtype;
  args.transpose_a = c.transpose_a;
  args.transpose_b = c.transpose_b;
  args.accumulate = c.transpose_a;
  args.rows = c.rows;
  args.cols = args.ldc = c.cols;
  args.inner = c.inner;
  args.lda = c.transpose_a ? c.rows : c.inner;
  args.ldb = c.transpose_b ? c.inner : c.cols;
  args.a = a.data();
  args.b = b.data();
  args.c = out.data();
  args.alpha = 1;
  std::vector<char> packed;
  if (c.packed) {
    packed.resize(packed_bytes(engine, dtype, c.inner, c.cols));
    pack_with(engine, context.get(), packed.data(), {b.data(), args.ldb, dtype, c.transpose_b}, c.inner, c.cols);
    args.packed_b = packed.data();
  }
  const double flops = 2.0 * static_cast<double>(c.rows) * static_cast<double>(c.cols) * static_cast<double>(c.inner);
  const Rate ours = measure(flops, options.seconds, threads, [&] { matmul_with(engine, context.get(), args); });
  std::printf("%-16s %6ld x %5ld x %5ld %-4s t%d  invar %7.1f best %7.1f median %5.1f%% of limit", c.name.c_str(),
              static_cast<long>(c.rows), static_cast<long>(c.cols), static_cast<long>(c.inner),
              dtype == kF32 ? "f32" : "bf16", threads, ours.best, ours.median, 100 * ours.share);
  if (options.onednn) {
    set_onednn_threads(threads);
    const auto call = make_onednn({c.rows, c.cols, c.inner, dtype, c.c_dtype, c.transpose_a, c.transpose_b, c.packed,
                                   a.data(), b.data(), out.data()});
    if (call) {
      const Rate theirs = measure(flops, options.seconds, threads, call);
      std::printf("   oneDNN %7.1f best %7.1f median %5.1f%%, ratio %.2f", theirs.best, theirs.median,
                  100 * theirs.share, ours.share / theirs.share);
    } else {
      std::printf("   oneDNN: not supported");
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

std::vector<int64_t> numbers(const char* text) {
  std::vector<int64_t> all;
  for (const char* at = text; *at != 0;) {
    char* end;
    all.push_back(std::strtol(at, &end, 10));
    if (end == at) break;
    at = *end == ',' ? end + 1 : end;
  }
  return all;
}

int main_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--no-onednn") {
      options.onednn = false;
      continue;
    }
    ++i;
    if (name == "--threads") {
      options.threads = numbers(value);
    } else if (name == "--tokens") {
      options.tokens = numbers(value);
    } else if (name == "--dtype") {
      options.dtypes = {std::strcmp(value, "f32") == 0 ? kF32 : kBF16};
    } else if (name == "--only") {
      options.only = value;
    } else if (name == "--seconds") {
      options.seconds = std::strtod(value, nullptr);
    } else if (name != "--level" || !level_from_name(value, &options.level)) {
      std::fprintf(stderr, "unknown option %s %s\n", name.c_str(), value);
      return 2;
    }
  }
  const Peak peak = measure_peak(0.1);
  std::printf("one core: FP32 FMA %.1f GFLOP/s, vdpbf16ps %.1f GFLOP/s; level %s\n", peak.fma_f32, peak.dot_bf16,
              level_name(options.level));
  for (int64_t tokens : options.tokens) {
    for (int32_t dtype : options.dtypes) {
      for (const Case& c : cases(tokens, dtype)) {
        if (c.name.find(options.only) == std::string::npos) continue;
        for (int64_t threads : options.threads) {
          run_case(options, c, dtype, static_cast<int>(threads));
        }
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace invar::cpu

int main(int argc, char** argv) { return invar::cpu::main_of(argc, argv); }
