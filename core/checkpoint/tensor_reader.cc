#include "core/checkpoint/tensor_reader.h"

#include <algorithm>
#include <cstring>

#include "core/checkpoint/tile.h"
#include "core/checkpoint/tile_runner.h"
#include "core/numerics/cpu_features.h"

namespace invar {
namespace {

bool is_target(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32; }

// What one worker needs between pieces.
struct Worker {
  Worker(const CheckpointFolder& folder, const TileOptions& options) : tile(folder, options) {}
  Tile tile;
  std::vector<std::byte> stored, values;
};

}  // namespace

Result<std::unique_ptr<TensorReader>> TensorReader::open(FileSystem& files, const Options& options) {
  INVAR_ASSIGN(auto folder, CheckpointFolder::open(files, options.path));
  std::unique_ptr<TensorReader> reader(new TensorReader(std::move(folder), options));
  INVAR_ASSIGN(reader->layout_, classify(reader->folder_, options.assume));
  return reader;
}

int64_t TensorReader::find(std::string_view name) const {
  const auto it = std::find_if(layout_.tensors.begin(), layout_.tensors.end(),
                               [&](const TensorPlan& plan) { return plan.name == name; });
  return it == layout_.tensors.end() ? -1 : it - layout_.tensors.begin();
}

std::string TensorReader::label(const TensorPlan& plan) const {
  return cat(join_path(folder_.path(), folder_.file_name(*plan.source)), ": tensor ", in_quotes(plan.name));
}

Status TensorReader::check_request(const TensorPlan& plan, int64_t first, int64_t rows, DType dtype,
                                   size_t bytes) const {
  const int64_t all = rows_of(plan);
  if (first < 0 || rows < 0 || first > all || rows > all - first) {
    return Error(Code::kOutOfRange, "checkpoint.row_range",
                 cat(label(plan), " has ", all, " rows; ", rows, " from ", first, " are not among them"));
  }
  const DType stored = plan.source->dtype;
  const bool decodes = is_target(dtype) && (plan.quantized() || is_target(stored));
  if (!decodes && (plan.quantized() || dtype != stored)) {
    return Error(
        Code::kInvalidArgument, "checkpoint.read_dtype",
        cat(label(plan), " is stored as ", name_of(stored), " and cannot be read as ", name_of(dtype),
            plan.quantized() || is_target(stored) ? ": ask for BF16, F16 or F32" : ": it is read as it is stored"));
  }
  const int64_t row_elements = all == 0 ? 0 : element_count(plan.shape) / all;
  const int64_t needed = bytes_of(dtype, rows * row_elements);
  if (static_cast<uint64_t>(needed) > bytes) {
    return Error(
        Code::kOutOfRange, "checkpoint.read_size",
        cat(label(plan), ": ", rows, " rows as ", name_of(dtype), " are ", needed, " bytes, the buffer holds ", bytes));
  }
  return {};
}

Status TensorReader::read_rows(const TensorPlan& plan, int64_t first, int64_t rows, DType dtype,
                               std::span<std::byte> out, ThreadPool& pool, const CancelFlag* cancel) const {
  INVAR_TRY(check_request(plan, first, rows, dtype, out.size()));
  if (rows == 0 || element_count(plan.shape) == 0) return {};
  const int64_t row_elements = element_count(plan.shape) / rows_of(plan);
  const int64_t begin = first * row_elements, count = rows * row_elements;
  const bool quantized = plan.quantized();
  const DType source = plan.source->dtype;
  TileOptions options;
  options.target = dtype;
  options.round_once = options_.round_once;
  options.keep_nan = options_.keep_nan;
  options.level = cpu_level();
  const int64_t pieces = (count + kTileElements - 1) / kTileElements;
  const int workers = static_cast<int>(std::min<int64_t>(pool.threads(), pieces));
  std::vector<std::unique_ptr<Worker>> states;
  for (int i = 0; i < workers; ++i) states.push_back(std::make_unique<Worker>(folder_, options));
  const auto piece = [&](int64_t index, int worker) -> Status {
    Worker& state = *states[static_cast<size_t>(worker)];
    const int64_t at = index * kTileElements, n = std::min(kTileElements, count - at);
    const int64_t from = quantized ? plan.stored_bytes(begin + at) : bytes_of(source, begin + at);
    const int64_t to = bytes_of(dtype, at), bytes = bytes_of(dtype, n);
    const auto target = out.subspan(static_cast<size_t>(to), static_cast<size_t>(bytes));
    if (!quantized && source == dtype) return folder_.read(*plan.source, from, target);
    state.stored.resize(static_cast<size_t>(quantized ? plan.stored_bytes(n) : bytes_of(source, n)));
    INVAR_TRY(folder_.read(*plan.source, from, state.stored));
    // Tiles are written with aligned stores; a host's buffer may begin anywhere.
    const bool aligned = reinterpret_cast<uintptr_t>(target.data()) % 4 == 0;
    if (!aligned) state.values.resize(target.size());
    std::byte* values = aligned ? target.data() : state.values.data();
    TileStats ignored;
    if (quantized) {
      INVAR_TRY(state.tile.convert(plan, begin + at, state.stored, values, &ignored));
    } else {
      state.tile.cast(source, state.stored, values, &ignored);
    }
    if (!aligned) std::memcpy(target.data(), values, target.size());
    return {};
  };
  // Small requests do not wait for other users of the pool.
  if (pieces == 1) {
    INVAR_TRY(check_cancel(cancel));
    return piece(0, 0);
  }
  return run_pieces(pool, workers, pieces, cancel, piece);
}

}  // namespace invar
