#include "core/checkpoint/verify_quantized.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "core/checkpoint/declared.h"
#include "core/checkpoint/quantized_writer.h"
#include "core/checkpoint/tile.h"
#include "core/checkpoint/tile_runner.h"
#include "core/checkpoint/values.h"
#include "core/numerics/formats.h"
#include "core/numerics/fp_mode.h"

namespace invar {
namespace {

// One weight on both sides, and what is found out about it.
struct Item {
  const TensorPlan *source, *result;
  std::vector<float> scales;                      // stored; empty: not quantised
  std::unique_ptr<std::atomic<uint32_t>[]> amax;  // FP32 bits of the largest magnitude under each scale
  std::mutex mutex;
  int64_t different = 0, first = -1;
  std::string detail;  // of the first difference

  const ScaleGrid& grid() const { return result->scales[0].grid; }
  int64_t scale_of(int64_t element) const {
    return grid().scale_row(element / grid().cols) + element % grid().cols / grid().block_cols;
  }
  // Elements from `element` on, at most `limit`, under one scale and in one row.
  int64_t run(int64_t element, int64_t limit) const {
    const int64_t col = element % grid().cols;
    return std::min({limit, grid().cols - col, grid().block_cols - col % grid().block_cols});
  }
};

struct Piece {
  Item* item;
  int64_t first, count;
};

struct Buffers {
  explicit Buffers(const CheckpointFolder& source) : reader(source) {}
  ValueReader reader;
  std::vector<float> values;
  std::vector<std::byte> stored, original;
};

class QuantizedVerification {
 public:
  QuantizedVerification(const v1::VerifyConfig& config, const CheckpointFolder& source, const Layout& source_layout,
                        const CheckpointFolder& result, const WorkContext& context, const ProblemSink& problem)
      : config_(config),
        source_(source),
        source_layout_(source_layout),
        result_(result),
        context_(context),
        problem_(problem) {}

  Status run(v1::VerifyReport* report) {
    INVAR_ASSIGN(const Declared declared, read_declared(result_));
    if (!declared.quantized) {
      problem_("", "config", cat(result_.path(), ": holds FP8 weights but its config.json does not declare them"), 0);
    }
    auto layout = classify(result_, {});
    if (!layout.ok()) {
      problem_("", "config", layout.status().message(), 0);
      return {};
    }
    layout_ = std::move(*layout);
    match();
    for (const auto& item : items_) {
      if (item->result->quantized()) INVAR_TRY(read_scales(item.get()));
    }
    INVAR_TRY(each_piece(/*quantized_only=*/true,
                         [this](const Piece& piece, Buffers& own) { return note_amax(piece, own); }));
    for (const auto& item : items_) check_scales(*item);
    INVAR_TRY(each_piece(/*quantized_only=*/false, [this](const Piece& piece, Buffers& own) {
      return piece.item->scales.empty() ? compare_copy(piece, own) : compare_codes(piece, own);
    }));
    int64_t elements = 0, checked = 0, mismatched = 0;
    for (const auto& item : items_) {
      const int64_t count = element_count(item->source->shape);
      elements += count;
      if (!item->scales.empty()) {
        checked += count;
        mismatched += item->different;
      }
      if (item->different > 0) problem_(item->source->name, "value", item->detail, item->different);
    }
    report->set_elements(elements);
    report->set_reencode_checked(checked);
    report->set_reencode_mismatched(mismatched);
    return {};
  }

 private:
  std::string where(const TensorInfo& tensor) const {
    return cat(join_path(result_.path(), result_.file_name(tensor)), ": tensor ", in_quotes(tensor.name));
  }

  void match() {
    std::map<std::string_view, const TensorPlan*> results;
    for (const TensorPlan& plan : layout_.tensors) results[plan.name] = &plan;
    std::set<std::string_view> expected;
    for (const TensorPlan& plan : source_layout_.tensors) {
      expected.insert(plan.name);
      const auto found = results.find(plan.name);
      if (found == results.end()) {
        problem_(plan.name, "missing", cat(result_.path(), ": holds no tensor ", in_quotes(plan.name)), 0);
        continue;
      }
      const TensorPlan& result = *found->second;
      if (result.shape != plan.shape) {
        problem_(
            plan.name, "shape",
            cat(where(*result.source), " has shape ", shape_text(result.shape), "; expected ", shape_text(plan.shape)),
            0);
        continue;
      }
      const DType copied = plan.quantized() ? DType::kBF16 : plan.source->dtype;
      const bool ours = result.coding == Coding::kFloat && result.code_dtype == DType::kE4M3FN &&
                        result.scales.size() == 1 && !result.scales[0].divides &&
                        result.scales[0].dtype == DType::kF32 && result.scales[0].grid.row_ends.empty();
      if (result.quantized() ? !ours : result.source->dtype != copied) {
        problem_(plan.name, "dtype",
                 cat(where(*result.source), " is ", name_of(result.source->dtype), "; expected ",
                     result.quantized() ? std::string("F8_E4M3 with one level of F32 scales")
                                        : std::string(name_of(copied))),
                 0);
        continue;
      }
      items_.push_back(std::make_unique<Item>());
      items_.back()->source = &plan;
      items_.back()->result = &result;
    }
    for (const TensorPlan& plan : layout_.tensors) {
      if (expected.count(plan.name) == 0) {
        problem_(plan.name, "extra", cat(where(*plan.source), " is not in the source"), 0);
      }
    }
  }

  Status read_scales(Item* item) {
    const TensorInfo& tensor = *item->result->scales[0].tensor;
    item->scales.resize(static_cast<size_t>(element_count(tensor.shape)));
    item->amax = std::make_unique<std::atomic<uint32_t>[]>(item->scales.size());
    return result_.read(tensor, 0, std::as_writable_bytes(std::span(item->scales)));
  }

  template <typename Work>
  Status each_piece(bool quantized_only, const Work& work) {
    std::vector<Piece> pieces;
    for (const auto& item : items_) {
      if (quantized_only && item->scales.empty()) continue;
      const int64_t count = element_count(item->source->shape);
      for (int64_t first = 0; first < count; first += kTileElements) {
        pieces.push_back({item.get(), first, std::min(kTileElements, count - first)});
      }
    }
    int64_t done = 0, total = 0;
    for (const Piece& piece : pieces) total += piece.item->source->stored_bytes(piece.count);
    int workers = context_.pool.threads();
    if (config_.threads() > 0) workers = static_cast<int>(std::min<int64_t>(workers, config_.threads()));
    workers = static_cast<int>(std::clamp<int64_t>(config_.memory_bytes() / (kTileElements * 16), 1, workers));
    std::vector<std::unique_ptr<Buffers>> buffers;
    for (int i = 0; i < workers; ++i) buffers.push_back(std::make_unique<Buffers>(source_));
    std::mutex mutex;
    return run_pieces(context_.pool, workers, static_cast<int64_t>(pieces.size()), context_.cancel,
                      [&](int64_t index, int worker) -> Status {
                        const FpModeScope mode;
                        const Piece& piece = pieces[static_cast<size_t>(index)];
                        INVAR_TRY(work(piece, *buffers[static_cast<size_t>(worker)]));
                        if (!context_.progress) return {};
                        std::lock_guard lock(mutex);
                        context_.progress(done += piece.item->source->stored_bytes(piece.count), total);
                        return {};
                      });
  }

  Status read_values(const Piece& piece, Buffers& own) {
    own.values.resize(static_cast<size_t>(piece.count));
    return own.reader.read(*piece.item->source, piece.first, std::span(own.values));
  }

  Status note_amax(const Piece& piece, Buffers& own) {
    INVAR_TRY(read_values(piece, own));
    const Item& item = *piece.item;
    for (int64_t i = 0; i < piece.count;) {
      const int64_t run = item.run(piece.first + i, piece.count - i);
      uint32_t largest = 0;
      for (int64_t k = i; k < i + run; ++k) {
        largest = std::max(largest, std::bit_cast<uint32_t>(own.values[static_cast<size_t>(k)]) & 0x7FFFFFFFu);
      }
      std::atomic<uint32_t>& amax = item.amax[static_cast<size_t>(item.scale_of(piece.first + i))];
      for (uint32_t before = amax.load(); before < largest && !amax.compare_exchange_weak(before, largest);) {
      }
      i += run;
    }
    return {};
  }

  void check_scales(const Item& item) {
    for (size_t i = 0; i < item.scales.size(); ++i) {
      const float amax = std::bit_cast<float>(item.amax[i].load());
      const float expected = std::isfinite(amax) ? fp8_scale_inv(amax) : NAN;
      if (item.scales[i] == expected) continue;
      const TensorInfo& tensor = *item.result->scales[0].tensor;
      problem_(item.source->name, "scale",
               cat(where(tensor), " is ", item.scales[i], " at ", position_text(tensor.shape, static_cast<int64_t>(i)),
                   "; the largest weight below it is ", amax, ", which asks for ", expected),
               0);
      return;  // one line for each tensor
    }
  }

  void note(Item* item, int64_t element, const std::string& detail) {
    std::lock_guard lock(item->mutex);
    ++item->different;
    if (item->first >= 0 && item->first <= element) return;
    item->first = element;
    item->detail = detail;
  }

  Status compare_codes(const Piece& piece, Buffers& own) {
    INVAR_TRY(read_values(piece, own));
    Item& item = *piece.item;
    own.stored.resize(static_cast<size_t>(piece.count));
    INVAR_TRY(result_.read(*item.result->source, piece.first, own.stored));
    for (int64_t i = 0; i < piece.count;) {
      const int64_t run = item.run(piece.first + i, piece.count - i);
      const float scale = item.scales[static_cast<size_t>(item.scale_of(piece.first + i))];
      for (int64_t k = i; k < i + run; ++k) {
        const auto at = static_cast<size_t>(k);
        const auto stored = static_cast<uint8_t>(own.stored[at]);
        const uint8_t expected = encode_fp8(DType::kE4M3FN, own.values[at] / scale);
        if (stored == expected) continue;
        note(&item, piece.first + k,
             cat(where(*item.result->source), " stands for ", decode(DType::kE4M3FN, stored) * scale, " at ",
                 position_text(item.source->shape, piece.first + k), "; the nearest to ", own.values[at], " is ",
                 decode(DType::kE4M3FN, expected) * scale));
      }
      i += run;
    }
    return {};
  }

  // Kept weights: the source's own bytes, or the BF16 of what was quantised there.
  Status compare_copy(const Piece& piece, Buffers& own) {
    Item& item = *piece.item;
    const TensorInfo& tensor = *item.result->source;
    const int64_t begin = bytes_of(tensor.dtype, piece.first), bytes = bytes_of(tensor.dtype, piece.count);
    own.stored.resize(static_cast<size_t>(bytes));
    INVAR_TRY(result_.read(tensor, begin, own.stored));
    own.original.resize(own.stored.size());
    if (item.source->quantized()) {
      INVAR_TRY(read_values(piece, own));
      for (size_t i = 0; i < own.values.size(); ++i) {
        const uint16_t bits = bf16_from_f32(own.values[i]);
        std::memcpy(own.original.data() + 2 * i, &bits, sizeof bits);
      }
    } else {
      INVAR_TRY(source_.read(*item.source->source, begin, own.original));
    }
    if (own.stored == own.original) return {};
    const auto width = static_cast<size_t>(std::max(1, bits_of(tensor.dtype) / 8));
    for (size_t at = 0; at < own.stored.size(); at += width) {
      if (std::memcmp(own.stored.data() + at, own.original.data() + at, width) == 0) continue;
      const int64_t element = piece.first + static_cast<int64_t>(at / width);
      note(&item, element,
           cat(where(tensor), " differs from the source at ", position_text(item.source->shape, element),
               ", the first of all"));
    }
    return {};
  }

  const v1::VerifyConfig& config_;
  const CheckpointFolder& source_;
  const Layout& source_layout_;
  const CheckpointFolder& result_;
  const WorkContext& context_;
  const ProblemSink& problem_;
  Layout layout_;  // of the result
  std::vector<std::unique_ptr<Item>> items_;
};

}  // namespace

bool is_quantized_result(const Layout& source, const CheckpointFolder& result) {
  return std::any_of(source.tensors.begin(), source.tensors.end(), [&](const TensorPlan& plan) {
    if (plan.rule == "kept") return false;
    const TensorInfo* tensor = result.find(plan.name);
    return tensor != nullptr && is_fp8(tensor->dtype);
  });
}

Status verify_quantized(const v1::VerifyConfig& config, const CheckpointFolder& source, const Layout& source_layout,
                        const CheckpointFolder& result, const WorkContext& context, const ProblemSink& problem,
                        v1::VerifyReport* report) {
  return QuantizedVerification(config, source, source_layout, result, context, problem).run(report);
}

}  // namespace invar
