// Conversion rate on a checkpoint of the caller's, beside the machine's limit for the same bytes: reading each tile and
// writing twice its size, without arithmetic, by the same pool.
//
//   convert_bench SOURCE SCRATCH [THREADS [REPEATS]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "core/checkpoint/convert.h"
#include "core/checkpoint/tile.h"
#include "core/checkpoint/tile_runner.h"

namespace invar {
namespace {

using Clock = std::chrono::steady_clock;

// Processor time of all threads: steadier than the clock on a machine that others use too.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

Status copy_twice(FileSystem& files, ThreadPool& pool, const CheckpointFolder& folder, const std::string& target) {
  INVAR_TRY(files.make_directories(target));
  for (const auto& source : folder.files()) {
    INVAR_ASSIGN(auto in, files.open(source->path()));
    INVAR_ASSIGN(auto out, files.create(join_path(target, base_name(source->path()))));
    constexpr int64_t kBytes = kTileElements;
    std::vector<std::vector<std::byte>> buffers(static_cast<size_t>(pool.threads()),
                                                std::vector<std::byte>(static_cast<size_t>(kBytes * 2)));
    INVAR_TRY(run_pieces(
        pool, pool.threads(), (in->size() + kBytes - 1) / kBytes, nullptr, [&](int64_t piece, int worker) -> Status {
          const int64_t n = std::min(kBytes, in->size() - piece * kBytes);
          auto& buffer = buffers[static_cast<size_t>(worker)];
          INVAR_TRY(in->read_at(piece * kBytes, std::span(buffer).first(static_cast<size_t>(n))));
          return out->write_at(piece * kBytes * 2, std::span(buffer).first(static_cast<size_t>(n * 2)));
        }));
    INVAR_TRY(out->close(false));
  }
  return {};
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: convert_bench SOURCE SCRATCH [THREADS [REPEATS]]\n");
    return 2;
  }
  const std::string source = argv[1], scratch = argv[2];
  ThreadPool pool(argc > 3 ? std::atoi(argv[3]) : 0);
  const int repeats = argc > 4 ? std::atoi(argv[4]) : 5;
  const auto folder = CheckpointFolder::open(posix_files(), source);
  if (!folder.ok()) {
    std::fprintf(stderr, "%s\n", folder.status().message().c_str());
    return 3;
  }
  std::vector<double> ours, limit, ours_cpu, limit_cpu;
  double bytes = 0;
  for (int i = 0; i < repeats; ++i) {
    const std::string target = join_path(scratch, "bench-result"), copy = join_path(scratch, "bench-copy");
    (void)posix_files().remove_all(copy).ok();
    auto begin = Clock::now();
    double cpu = processor_seconds();
    const Status copied = copy_twice(posix_files(), pool, *folder, copy);
    limit.push_back(seconds_since(begin));
    limit_cpu.push_back(processor_seconds() - cpu);
    (void)posix_files().remove_all(copy).ok();
    (void)posix_files().remove_all(target).ok();
    v1::ConvertConfig config;
    config.set_source(source);
    config.set_destination(target);
    config.set_durable(false);
    begin = Clock::now();
    cpu = processor_seconds();
    const auto report = convert(config, {posix_files(), pool});
    ours.push_back(seconds_since(begin));
    ours_cpu.push_back(processor_seconds() - cpu);
    if (!report.ok() || !copied.ok()) {
      std::fprintf(stderr, "%s\n", (report.ok() ? copied : report.status()).message().c_str());
      return 3;
    }
    bytes = static_cast<double>(report->bytes_written());
    if (i + 1 < repeats) (void)posix_files().remove_all(target).ok();
  }
  std::sort(ours.begin(), ours.end());
  std::sort(limit.begin(), limit.end());
  std::sort(ours_cpu.begin(), ours_cpu.end());
  std::sort(limit_cpu.begin(), limit_cpu.end());
  const double median = ours[ours.size() / 2], median_limit = limit[limit.size() / 2];
  std::printf(
      "{\"bench\":\"convert\",\"threads\":%d,\"s_best\":%.3f,\"s_median\":%.3f,\"out_gbs_best\":%.2f,"
      "\"copy_s_best\":%.3f,\"copy_s_median\":%.3f,\"share_of_copy_best\":%.2f,\"share_of_copy_median\":%.2f,"
      "\"cpu_s_best\":%.3f,\"copy_cpu_s_best\":%.3f}\n",
      pool.threads(), ours[0], median, bytes / ours[0] / 1e9, limit[0], median_limit, limit[0] / ours[0],
      median_limit / median, ours_cpu[0], limit_cpu[0]);
  return 0;
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) { return invar::run(argc, argv); }
