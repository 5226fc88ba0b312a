// Tensors of a checkpoint as a loader wants them: whole or some rows, decoded into the caller's own memory.
//
//   INVAR_ASSIGN(auto reader, TensorReader::open(files, {.path = "DeepSeek-V3"}));
//   for (const TensorPlan& plan : reader->layout().tensors) ...
//   INVAR_TRY(reader->read_rows(plan, 0, TensorReader::rows_of(plan), DType::kBF16, memory, pool, nullptr));
//
// Invariant: the bytes are those that convert() writes for the same tensor, rounding and NaN policy, whichever rows are
// asked for. Nothing but the tiles at work is held in memory.
// Thread rule: immutable once open; read_rows() from any number of threads.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/base/cancel.h"
#include "core/base/thread_pool.h"
#include "core/checkpoint/layout.h"

namespace invar {

class TensorReader {
 public:
  struct Options {
    std::string path;
    Assumptions assume = {};
    bool round_once = false;  // the product in FP64, one rounding
    bool keep_nan = false;    // NaN codes become NaN instead of an error
  };

  static Result<std::unique_ptr<TensorReader>> open(FileSystem& files, const Options& options);

  const CheckpointFolder& folder() const { return folder_; }
  const Layout& layout() const { return layout_; }
  // The tensor of that name in the result; -1 when there is none.
  int64_t find(std::string_view name) const;

  // Size of the first dimension; 1 for a scalar.
  static int64_t rows_of(const TensorPlan& plan) { return plan.shape.empty() ? 1 : plan.shape[0]; }
  // Rows [first, first + rows) as `dtype`: BF16, F16 or F32; what is not a float of 8 to 32 bits only as it is stored.
  // They are written to the start of `out`, which holds at least their bytes. checkpoint.row_range,
  // checkpoint.read_dtype, checkpoint.read_size, and the errors of Tile::convert.
  Status read_rows(const TensorPlan& plan, int64_t first, int64_t rows, DType dtype, std::span<std::byte> out,
                   ThreadPool& pool, const CancelFlag* cancel) const;

 private:
  explicit TensorReader(CheckpointFolder folder, const Options& options)
      : folder_(std::move(folder)), options_(options) {}
  Status check_request(const TensorPlan& plan, int64_t first, int64_t rows, DType dtype, size_t bytes) const;
  std::string label(const TensorPlan& plan) const;  // file: tensor "name"

  CheckpointFolder folder_;  // the layout points into it
  Layout layout_;
  Options options_;
};

}  // namespace invar
