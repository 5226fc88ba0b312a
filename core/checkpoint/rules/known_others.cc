// E8M0 stored as values, and layouts that are recognised so that they are refused by name, not by accident.
#include "core/checkpoint/rules/rules.h"

namespace invar {

void power_of_two_values_rule(const LayoutSource&, const TensorInfo& weight, std::vector<Reading>* readings) {
  if (weight.dtype != DType::kE8M0 || !weight.name.ends_with(".weight")) return;
  Reading reading;
  reading.plan.source = &weight;
  reading.plan.rule = "unscaled";
  reading.plan.layout = "e8m0-values";
  reading.plan.coding = Coding::kFloat;
  reading.plan.code_dtype = weight.dtype;
  reading.plan.name = weight.name;
  reading.plan.shape = weight.shape;
  readings->push_back(std::move(reading));
}

void unsupported_rule(const LayoutSource& source, const TensorInfo& tensor, std::vector<Reading>* readings) {
  struct Line {
    std::string_view ending;   // of this tensor's name
    std::string_view sibling;  // ending that must exist beside it; empty: none
    std::string_view layout;
    DType dtype;  // kUnspecified: any
  };
  static constexpr Line kLines[] = {
      {"._weight_qdata", "._weight_scale", "TorchAO integers", DType::kI8},
      {".qweight", ".qzeros", "GPTQ or AWQ", DType::kI32},
  };
  for (const Line& line : kLines) {
    if (!tensor.name.ends_with(line.ending) || (line.dtype != DType::kUnspecified && tensor.dtype != line.dtype))
      continue;
    const std::string stem = tensor.name.substr(0, tensor.name.size() - line.ending.size());
    if (source.folder.find(stem + std::string(line.sibling)) == nullptr) continue;
    readings->push_back(failed_reading(
        tensor, std::string(line.layout), true,
        Error(Code::kUnimplemented, "checkpoint.unsupported_layout",
              cat(source.label(tensor), " belongs to the layout ", line.layout, ", which cannot be read yet"))));
    return;
  }
}

}  // namespace invar
