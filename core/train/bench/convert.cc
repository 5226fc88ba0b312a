// Conversion of FP8 blocks to BF16 on files, beside the machine's limit for the same bytes: each tile read and twice
// its size written by the same pool, without arithmetic.
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "core/base/rng.h"
#include "core/checkpoint/convert.h"
#include "core/checkpoint/tile.h"
#include "core/checkpoint/tile_runner.h"
#include "core/container/safetensors_writer.h"
#include "core/train/bench/measure.h"

namespace invar {
namespace {

constexpr int64_t kSide = 4096, kBlock = 128;

// Removes the folder when it goes.
class Scratch {
 public:
  Scratch(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { (void)files_.remove_all(path_).ok(); }
  std::string inside(std::string_view name) const { return join_path(path_, name); }

 private:
  FileSystem& files_;
  std::string path_;
};

// Square matrices of finite E4M3 codes with 128x128 scales, about `bytes` of them.
Status make_checkpoint(FileSystem& files, ThreadPool& pool, const std::string& folder, int64_t bytes) {
  const int64_t side = bytes >= kSide * kSide ? kSide : kSide / 4;
  const int64_t matrices = std::max<int64_t>(1, bytes / (side * side)), grid = side / kBlock;
  INVAR_TRY(files.make_directories(folder));
  std::vector<TensorSpec> tensors;
  const auto name = [](int64_t i) { return cat("model.layers.", i, ".self_attn.o_proj.weight"); };
  for (int64_t i = 0; i < matrices; ++i) {
    tensors.push_back({name(i), DType::kE4M3FN, {side, side}});
    tensors.push_back({name(i) + "_scale_inv", DType::kF32, {grid, grid}});
  }
  INVAR_ASSIGN(auto writer, SafetensorsWriter::create(files, join_path(folder, "model.safetensors"), tensors));
  std::vector<uint64_t> codes(static_cast<size_t>(side * side / 8));
  std::vector<float> scales(static_cast<size_t>(grid * grid));
  for (int64_t i = 0; i < matrices; ++i) {
    pool.parallel_for(side, [&](int64_t row, int) {
      Rng rng(1, static_cast<uint64_t>(i * side + row));
      // Bit 3 cleared: never the pattern of not-a-number.
      for (int64_t k = 0; k < side / 8; ++k) codes[row * side / 8 + k] = rng.next_u64() & 0xF7F7F7F7F7F7F7F7u;
    });
    Rng rng(2, static_cast<uint64_t>(i));
    for (float& scale : scales) scale = static_cast<float>(1e-4 * (0.5 + rng.next_unit()));
    INVAR_TRY(writer.write(name(i), 0, std::as_bytes(std::span(codes))));
    INVAR_TRY(writer.write(name(i) + "_scale_inv", 0, std::as_bytes(std::span(scales))));
  }
  INVAR_TRY(writer.close(false));
  return write_text_atomically(files, join_path(folder, "config.json"),
                               R"({"model_type": "llama", "torch_dtype": "bfloat16", "quantization_config": )"
                               R"({"quant_method": "fp8", "weight_block_size": [128, 128]}})");
}

Status copy_twice(FileSystem& files, ThreadPool& pool, const CheckpointFolder& folder, const std::string& target,
                  bool durable) {
  INVAR_TRY(files.make_directories(target));
  constexpr int64_t kBytes = kTileElements;
  std::vector<std::vector<std::byte>> buffers(static_cast<size_t>(pool.threads()),
                                              std::vector<std::byte>(static_cast<size_t>(kBytes * 2)));
  for (const std::unique_ptr<WeightFile>& source : folder.files()) {
    INVAR_ASSIGN(auto in, files.open(source->path()));
    INVAR_ASSIGN(auto out, files.create(join_path(target, base_name(source->path()))));
    INVAR_TRY(run_pieces(
        pool, pool.threads(), (in->size() + kBytes - 1) / kBytes, nullptr, [&](int64_t piece, int worker) -> Status {
          const int64_t n = std::min(kBytes, in->size() - piece * kBytes);
          auto& buffer = buffers[static_cast<size_t>(worker)];
          INVAR_TRY(in->read_at(piece * kBytes, std::span(buffer).first(static_cast<size_t>(n))));
          return out->write_at(piece * kBytes * 2, std::span(buffer).first(static_cast<size_t>(n * 2)));
        }));
    INVAR_TRY(out->close(durable));
  }
  return {};
}

}  // namespace

Result<v1::BenchReport> bench_convert(const v1::BenchConfig& config, const BenchEnvironment& environment) {
  FileSystem& files = *environment.files;
  const auto pool = bench_pool(config, environment);
  const Scratch scratch(files,
                        join_path(config.scratch().empty() ? "/tmp" : config.scratch(), cat("invar-bench-", getpid())));
  std::string source = config.source();
  if (source.empty()) {
    source = scratch.inside("source");
    INVAR_TRY(make_checkpoint(files, *pool, source, config.bytes()));
  }
  INVAR_ASSIGN(const CheckpointFolder folder, CheckpointFolder::open(files, source));
  const std::string target = scratch.inside("result"), copy = scratch.inside("copy");
  const int64_t repeats = config.repeats() > 0 ? config.repeats() : 3;
  int64_t bytes = 0;
  BenchTimes ours[2], limit[2];
  for (const bool durable : {false, true}) {
    v1::ConvertConfig job;
    job.set_source(source);
    job.set_destination(target);
    job.set_durable(durable);
    std::vector<double> limit_seconds;
    Status failure;
    const auto between = [&] {
      (void)files.remove_all(target).ok();
      const double start = bench_now();
      if (failure.ok()) failure = copy_twice(files, *pool, folder, copy, durable);
      limit_seconds.push_back(bench_now() - start);
      (void)files.remove_all(copy).ok();
    };
    // The first pair brings the source into the page cache.
    between();
    limit_seconds.clear();
    INVAR_ASSIGN(ours[durable], bench_measure(environment, repeats, between, [&]() -> Status {
                   INVAR_TRY(std::move(failure));
                   INVAR_ASSIGN(const v1::ConvertReport report, convert(job, {files, *pool, environment.cancel}));
                   bytes = report.bytes_written();
                   return {};
                 }));
    (void)files.remove_all(target).ok();
    limit[durable] = bench_times(std::move(limit_seconds));
  }
  v1::BenchReport report = bench_report(config, *pool, repeats, ours[0]);
  const double gb = static_cast<double>(bytes) * 1e-9;
  report.set_gbytes_per_second(gb / ours[0].best);
  for (const bool durable : {false, true}) {
    const char* name = durable ? "written and flushed" : "written";
    add_bench_limit(report, name, gb / ours[durable].best, gb / limit[durable].best, "GB/s");
    add_bench_limit(report, cat(name, ", median"), gb / ours[durable].median, gb / limit[durable].median, "GB/s");
  }
  report.add_notes("limit: the same bytes read and written by the same threads, without arithmetic");
  return report;
}

}  // namespace invar
