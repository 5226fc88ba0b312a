// Rates of the codecs on one thread, out of the caches and inside them. Each line names its limit: a copy loop
// that moves the same bytes (reads `in`, writes `out` with plain or streaming stores), run in the same pass, so
// that a noisy machine moves both. 100 % means that arithmetic costs nothing.
//
//   codec_bench [MEGABYTES_IN]
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "core/numerics/codec.h"
#include "core/numerics/scale.h"
#include "core/numerics/stochastic.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace invar {
namespace {

constexpr int kRuns = 9;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Big pages where the system grants them: the limit is then memory, not its page table.
struct Buffer {
  explicit Buffer(size_t bytes) : size(bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::exit(1);
    madvise(memory, bytes, MADV_HUGEPAGE);
    std::memset(memory, 0x33, bytes);
    data = static_cast<char*>(memory);
  }
  ~Buffer() { munmap(data, size); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  char* data = nullptr;
  size_t size;
};

// Reads in_bytes, writes out_bytes: what any conversion of these sizes has to do.
void move_bytes(const char* in, size_t in_bytes, char* out, size_t out_bytes, bool streaming) {
#if defined(__x86_64__)
  const size_t steps = std::min(in_bytes, out_bytes) / 64;
  const size_t in_step = in_bytes / steps, out_step = out_bytes / steps;
  for (size_t step = 0; step < steps; ++step) {
    __m128i gathered = _mm_setzero_si128();
    for (size_t at = 0; at < in_step; at += 16) {
      gathered = _mm_or_si128(gathered, _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + step * in_step + at)));
    }
    for (size_t at = 0; at < out_step; at += 16) {
      __m128i* to = reinterpret_cast<__m128i*>(out + step * out_step + at);
      streaming ? _mm_stream_si128(to, gathered) : _mm_store_si128(to, gathered);
    }
  }
  _mm_sfence();
#else
  std::memcpy(out, in, std::min(in_bytes, out_bytes));
#endif
}

void report(const char* name, const Buffer& in, size_t in_bytes, const Buffer& out, size_t out_bytes, bool streaming,
            int repeats, const std::function<void()>& work) {
  std::vector<double> times, limits, shares;
  for (int run = 0; run < kRuns; ++run) {
    const double limit = seconds_of([&] {
      for (int i = 0; i < repeats; ++i) move_bytes(in.data, in_bytes, out.data, out_bytes, streaming);
    });
    const double time = seconds_of([&] {
      for (int i = 0; i < repeats; ++i) work();
    });
    times.push_back(time / repeats);
    limits.push_back(limit / repeats);
    shares.push_back(limit / time);
  }
  std::sort(times.begin(), times.end());
  std::sort(limits.begin(), limits.end());
  std::sort(shares.begin(), shares.end());
  std::printf("%-44s %7.2f GB/s out (median %6.2f)   copy loop %7.2f   share of it: best %3.0f %%, median %3.0f %%\n",
              name, static_cast<double>(out_bytes) / times[0] / 1e9,
              static_cast<double>(out_bytes) / times[kRuns / 2] / 1e9, static_cast<double>(out_bytes) / limits[0] / 1e9,
              100 * limits[0] / times[0], 100 * shares[kRuns / 2]);
}

void run_level(CpuLevel level, const Buffer& in, const Buffer& out, int64_t count, int repeats) {
  const auto name = [&](const char* what) {
    static char text[64];
    std::snprintf(text, sizeof text, "%s %s", std::string(cpu_level_name(level)).c_str(), what);
    return text;
  };
  const auto n = static_cast<size_t>(count);
  const uint8_t* codes = in.as<uint8_t>();
  const struct {
    const char* name;
    DType format;
    Store store;
  } conversions[] = {
      {"e4m3 -> bf16", DType::kE4M3FN, Store::kCached},
      {"e4m3 -> bf16 streaming", DType::kE4M3FN, Store::kStreaming},
      {"e5m2 -> bf16", DType::kE5M2, Store::kCached},
      {"e5m2fnuz -> bf16", DType::kE5M2FNUZ, Store::kCached},
  };
  for (const auto& conversion : conversions) {
    report(name(conversion.name), in, n, out, 2 * n, conversion.store == Store::kStreaming, repeats, [&] {
      convert_fp8_to_bf16(conversion.format, codes, out.as<uint16_t>(), count, 1e-4f, conversion.store, level);
    });
  }
  const std::vector<float> scales(n / 128 + 1, 1e-4f);
  report(name("e4m3 -> bf16, a scale each 128"), in, n, out, 2 * n, false, repeats, [&] {
    convert_fp8_row_to_bf16(DType::kE4M3FN, codes, out.as<uint16_t>(), count, scales.data(), 128, Store::kCached,
                            level);
  });
  report(name("e4m3 -> f16"), in, n, out, 2 * n, false, repeats,
         [&] { convert_fp8_to_f16(DType::kE4M3FN, codes, out.as<uint16_t>(), count, 1e-4f, level); });
  report(name("e4m3 -> f32"), in, n, out, 4 * n, false, repeats,
         [&] { convert_fp8_to_f32(DType::kE4M3FN, codes, out.as<float>(), count, 1e-4f, level); });
  const int64_t quarter = count / 4;
  report(name("f32 -> bf16"), in, n, out, n / 2, false, repeats,
         [&] { convert_f32_to_bf16(in.as<float>(), out.as<uint16_t>(), quarter, level); });
  report(name("f32 -> e4m3 (divide)"), in, n, out, n / 4, false, repeats, [&] {
    convert_f32_to_fp8(DType::kE4M3FN, in.as<float>(), out.as<uint8_t>(), quarter, 3.0f, Apply::kDivide, level);
  });
  Fp8Counts counts;
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    times.push_back(seconds_of([&] {
      for (int i = 0; i < repeats; ++i) count_codes(DType::kE4M3FN, codes, count, counts, level);
    }));
  }
  std::printf("%-44s %7.2f GB/s in\n", name("count codes"),
              static_cast<double>(n) * repeats / *std::min_element(times.begin(), times.end()) / 1e9);
}

int main_of(int argc, char** argv) {
  const int64_t megabytes = argc > 1 ? std::max(1, std::atoi(argv[1])) : 256;
  const int64_t count = megabytes << 20;
  const Buffer in(static_cast<size_t>(count)), out(static_cast<size_t>(4 * count));
  for (CpuLevel level : usable_cpu_levels()) {
    std::printf("-- %s, %lld MB in, from memory\n", std::string(cpu_level_name(level)).c_str(),
                static_cast<long long>(megabytes));
    run_level(level, in, out, count, 1);
    std::printf("-- %s, 256 KB in, from cache\n", std::string(cpu_level_name(level)).c_str());
    run_level(level, in, out, 256 << 10, 64);
  }
  report("f32 -> bf16 stochastic", in, static_cast<size_t>(count), out, static_cast<size_t>(count / 2), false, 1, [&] {
    convert_f32_to_bf16_stochastic(in.as<float>(), out.as<uint16_t>(), count / 4, {1, 2}, 0);
  });
  return 0;
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) { return invar::main_of(argc, argv); }
