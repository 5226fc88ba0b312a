// Factors that stand beside a weight and belong into it: ModelOpt's "pre_quant_scale" [cols], by which the inputs are
// multiplied (AWQ, SVDQuant), and SVDQuant's low-rank part "svdquant_lora_b" [rows, rank] times "svdquant_lora_a"
// [rank, cols], which is added. A layer computes W (x * s) + B (A (x * s)): the plain weight is (W + B A) with column k
// times s[k]. Left out, they give a model that looks right and is wrong.
#include <algorithm>

#include "core/checkpoint/rules/rules.h"
#include "core/checkpoint/values.h"

namespace invar {
namespace {

struct Factors {
  const TensorInfo *columns = nullptr, *down = nullptr, *up = nullptr;  // s, A, B
};

class FoldedDecoder : public Decoder {
 public:
  FoldedDecoder(TensorPlan base, const Factors& factors) : base_(std::move(base)), f_(factors) {}

  int64_t scratch_bytes() const override {
    const int64_t rank = f_.down == nullptr ? 0 : f_.down->shape[0], cols = base_.shape.back();
    const int64_t rows = (int64_t{1} << 17) / std::max<int64_t>(1, cols) + 2;
    return (2 << 20) + (rank + 1) * cols * 4 + rows * rank * 4;
  }

  Status decode(const CheckpointFolder& folder, int64_t first, std::span<float> values,
                DecoderScratch& scratch) const override {
    ValueReader reader(folder);
    if (base_.decodes()) {
      INVAR_TRY(base_.decoder->decode(folder, first, values, scratch));
    } else {
      INVAR_TRY(reader.read(base_, first, values));
    }
    const int64_t cols = base_.shape.back(), n = static_cast<int64_t>(values.size());
    if (f_.down != nullptr) INVAR_TRY(add_product(reader, first, values));
    if (f_.columns == nullptr) return {};
    std::vector<float> factors(static_cast<size_t>(cols));
    INVAR_TRY(reader.read(*f_.columns, 0, factors));
    for (int64_t i = 0; i < n; ++i) {
      values[static_cast<size_t>(i)] *= factors[static_cast<size_t>((first + i) % cols)];
    }
    return {};
  }

 private:
  Status add_product(ValueReader& reader, int64_t first, std::span<float> values) const {
    const int64_t cols = base_.shape.back(), rank = f_.down->shape[0], n = static_cast<int64_t>(values.size());
    const int64_t row_begin = first / cols, row_end = (first + n - 1) / cols + 1;
    std::vector<float> down(static_cast<size_t>(rank * cols)), up(static_cast<size_t>((row_end - row_begin) * rank));
    INVAR_TRY(reader.read(*f_.down, 0, down));
    INVAR_TRY(reader.read(*f_.up, row_begin * rank, up));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = (first + i) / cols - row_begin, col = (first + i) % cols;
      float sum = 0;
      for (int64_t r = 0; r < rank; ++r) {
        sum += up[static_cast<size_t>(row * rank + r)] * down[static_cast<size_t>(r * cols + col)];
      }
      values[static_cast<size_t>(i)] += sum;
    }
    return {};
  }

  TensorPlan base_;
  Factors f_;
};

}  // namespace

Status fold_factors(const LayoutSource& source, Reading* reading) {
  TensorPlan& plan = reading->plan;
  const std::string_view module = module_of(plan.name);
  const auto find = [&](const char* ending) { return source.folder.find(cat(module, ending)); };
  Factors factors{find(".pre_quant_scale"), find(".svdquant_lora_a"), find(".svdquant_lora_b")};
  if (factors.columns == nullptr && factors.down == nullptr && factors.up == nullptr) return {};
  const auto wrong = [&](const TensorInfo& tensor, const std::vector<int64_t>& wanted) {
    return Error(Code::kDataLoss, "checkpoint.scale_shape",
                 cat(source.label(tensor), " has shape ", shape_text(tensor.shape), "; weight ", in_quotes(plan.name),
                     " of ", shape_text(plan.shape), " needs ", shape_text(wanted)));
  };
  if (plan.shape.size() != 2) {
    return Error(Code::kUnimplemented, "checkpoint.unsupported_layout",
                 cat(source.label(*plan.source), " has factors to fold in and ", plan.shape.size(),
                     " dimensions; they are folded into matrices"));
  }
  const int64_t rows = plan.shape[0], cols = plan.shape[1];
  if (factors.columns != nullptr && element_count(factors.columns->shape) != cols)
    return wrong(*factors.columns, {cols});
  if ((factors.down == nullptr) != (factors.up == nullptr)) {
    return Error(Code::kDataLoss, "checkpoint.missing_scale",
                 cat(source.label(factors.down != nullptr ? *factors.down : *factors.up),
                     ": of svdquant_lora_a and _b ", "only one is there"));
  }
  if (factors.down != nullptr) {
    if (factors.down->shape.size() != 2 || factors.down->shape[1] != cols) return wrong(*factors.down, {-1, cols});
    const int64_t rank = factors.down->shape[0];
    if (factors.up->shape != std::vector<int64_t>{rows, rank}) return wrong(*factors.up, {rows, rank});
  }
  TensorPlan base = plan;
  plan.coding = Coding::kDecoder;
  plan.rule = "folded";
  plan.layout += factors.down != nullptr ? "-svdquant" : "-pre-scaled";
  for (const TensorInfo* factor : {factors.columns, factors.down, factors.up}) {
    if (factor != nullptr) plan.helpers.push_back(factor);
  }
  plan.decoder = std::make_shared<FoldedDecoder>(std::move(base), factors);
  return {};
}

}  // namespace invar
