#include "core/checkpoint/layout.h"

#include <algorithm>
#include <set>

#include "core/checkpoint/rules/rules.h"

namespace invar {
namespace {

struct AssumeKey {
  std::string_view key, values;
  bool (*valid)(const std::string&);
};

bool is_block(const std::string& value) {
  const auto cross = value.find('x');
  if (cross == std::string::npos || cross == 0 || cross + 1 >= value.size() || value.size() > 21) return false;
  if (value.find_first_not_of("0123456789x") != std::string::npos || value.find('x', cross + 1) != std::string::npos) {
    return false;
  }
  const auto positive = [](std::string_view digits) {
    return digits.size() <= 10 && digits.find_first_not_of('0') != std::string_view::npos;
  };
  return positive(std::string_view(value).substr(0, cross)) && positive(std::string_view(value).substr(cross + 1));
}

constexpr AssumeKey kAssumeKeys[] = {
    {"block", "ROWSxCOLS", is_block},
    {"scale_name", "the ending that counts, for example weight_scale_inv",
     [](const std::string& value) { return !value.empty(); }},
    {"scale", "multiplies or divides",
     [](const std::string& value) { return value == "multiplies" || value == "divides"; }},
    {"missing_scale", "one", [](const std::string& value) { return value == "one"; }},
    {"unused_scale", "drop", [](const std::string& value) { return value == "drop"; }},
    {"u8_scales", "e8m0", [](const std::string& value) { return value == "e8m0"; }},
    {"e4m3", "fn or fnuz", [](const std::string& value) { return value == "fn" || value == "fnuz"; }},
    {"bits", "1 to 8", [](const std::string& value) { return value.size() == 1 && value >= "1" && value <= "8"; }},
};

Status check_assumptions(const Assumptions& assume) {
  for (const auto& [key, value] : assume) {
    const auto* known = std::find_if(std::begin(kAssumeKeys), std::end(kAssumeKeys),
                                     [&key = key](const AssumeKey& line) { return line.key == key; });
    if (known == std::end(kAssumeKeys)) {
      return Error(Code::kInvalidArgument, "config.unknown_assumption",
                   cat("assume: unknown key ", in_quotes(key), "; known are ", assumption_help()));
    }
    if (!known->valid(value)) {
      return Error(Code::kInvalidArgument, "config.bad_assumption",
                   cat("assume: ", key, " is ", in_quotes(value), "; expected ", known->values));
    }
  }
  return {};
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [name](std::string_view ending) { return name.ends_with(ending); });
}

// Names that mean a weight's scale wherever they stand.
bool is_weight_scale_name(std::string_view name) {
  return ends_with_any(
      name, {"weight_scale", "weight_scale_inv", ".scale_weight", ".qscale_weight", "_scale_inv", "_scales_inv",
             "weight_scale_2", "weight_global_scale", ".pre_quant_scale", ".svdquant_lora_a", ".svdquant_lora_b"});
}

// Scales of activations and of the key-value cache: of no use to wider weights.
bool is_activation_scale_name(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') == std::string_view::npos ? 0 : name.rfind('.') + 1);
  for (std::string_view known :
       {"input_scale", "activation_scale", "scale_input", "qscale_act", "input_global_scale", "output_scale",
        "input_scale_ub", "k_scale", "v_scale", "q_scale", "prob_scale", "kv_scale"}) {
    if (last == known) return true;
  }
  return name.ends_with("_activation_scale") || name.ends_with("_input_scale");
}

class Classifier {
 public:
  Classifier(const CheckpointFolder& folder, const Declared& declared, const Assumptions& assume)
      : source_{folder, declared, assume} {}

  Result<Layout> run() {
    for (const TensorInfo& tensor : source_.folder.tensors()) INVAR_TRY(read(tensor));
    INVAR_TRY(account_for_the_rest());
    finish();
    return std::move(layout_);
  }

 private:
  // The one reading of `tensor`, if it is quantised.
  Status read(const TensorInfo& tensor) {
    // E4M3 is also a dtype of scales (NVFP4).
    if (is_weight_scale_name(tensor.name)) return {};
    std::vector<Reading> readings;
    if (is_fp8(tensor.dtype)) INVAR_TRY(check_one_scale(tensor));
    for (LayoutRule rule : layout_rules()) rule(source_, tensor, &readings);
    if (std::any_of(readings.begin(), readings.end(), [](const Reading& r) { return r.declared; })) {
      std::erase_if(readings, [](const Reading& r) { return !r.declared; });
    }
    Status failure;
    for (const Reading& reading : readings) {
      if (!reading.status.ok() && failure.ok()) failure = reading.status;
    }
    std::erase_if(readings, [](const Reading& r) { return !r.status.ok(); });
    // Readings that give every element the same scale are one reading.
    for (size_t i = 1; i < readings.size();) {
      const bool same = readings[0].plan.scales.size() == 1 && readings[i].plan.scales.size() == 1 &&
                        readings[0].plan.scales[0].tensor == readings[i].plan.scales[0].tensor &&
                        readings[0].plan.scales[0].grid == readings[i].plan.scales[0].grid;
      if (same) {
        readings.erase(readings.begin() + static_cast<int64_t>(i));
      } else {
        ++i;
      }
    }
    if (readings.size() > 1) return ambiguous(tensor, readings);
    if (readings.empty()) {
      if (!failure.ok()) return failure;
      if (is_fp8(tensor.dtype)) return unscaled(tensor);
      return {};  // copied, dropped or used as a scale: decided when all weights are known
    }
    return adopt(std::move(readings[0]));
  }

  Status check_one_scale(const TensorInfo& tensor) {
    std::vector<const TensorInfo*> found;
    for (const std::string& name : scale_names(tensor.name)) {
      if (const TensorInfo* scale = source_.folder.find(name)) found.push_back(scale);
    }
    const std::string chosen = source_.assumed("scale_name");
    if (found.size() > 1 && chosen.empty()) {
      return Error(
          Code::kDataLoss, "checkpoint.ambiguous_scale",
          cat(source_.label(tensor), " has two scales, ", in_quotes(found[0]->name), " ", shape_text(found[0]->shape),
              " and ", in_quotes(found[1]->name), " ", shape_text(found[1]->shape),
              "; state which counts with --assume scale_name=", found[0]->name.substr(found[0]->name.rfind('.') + 1),
              " or =", found[1]->name.substr(found[1]->name.rfind('.') + 1)));
    }
    if (found.size() > 1) {
      for (const TensorInfo* scale : found) {
        if (!scale->name.ends_with(chosen)) passed_over_.insert(scale);
      }
    }
    return {};
  }

  Status ambiguous(const TensorInfo& tensor, const std::vector<Reading>& readings) {
    std::string ways;
    for (const Reading& reading : readings) {
      ways += cat(ways.empty() ? "" : "; ", reading.plan.layout, " (", reading.plan.rule, ")");
      if (!reading.plan.scales.empty()) {
        const ScaleGrid& grid = reading.plan.scales[0].grid;
        ways += cat(": --assume block=", grid.block_rows, "x", grid.block_cols);
      }
    }
    return Error(Code::kDataLoss, "checkpoint.ambiguous_scale",
                 cat(source_.label(tensor), " can be read in ", readings.size(), " ways: ", ways));
  }

  // An 8-bit float weight that no rule reads.
  Status unscaled(const TensorInfo& tensor) {
    std::string looked_for;
    for (const std::string& name : scale_names(tensor.name)) {
      const TensorInfo* scale = source_.folder.find(name);
      if (scale != nullptr) {
        return Error(Code::kDataLoss, "checkpoint.ambiguous_scale",
                     cat(source_.label(*scale), " has shape ", shape_text(scale->shape),
                         ", which no known layout has for ", "its weight of ", shape_text(tensor.shape),
                         "; if it is a grid of blocks, state --assume block=ROWSxCOLS"));
      }
      looked_for += cat(looked_for.empty() ? "" : ", ", name.substr(name.rfind('.') + 1));
    }
    if (source_.assumed("missing_scale") != "one") {
      return Error(Code::kDataLoss, "checkpoint.missing_scale",
                   cat(source_.label(tensor), " is ", name_of(tensor.dtype), " ", shape_text(tensor.shape),
                       " and has no scale (looked for ", looked_for,
                       "); if its codes are the values, state --assume missing_scale=one"));
    }
    Reading reading;
    reading.plan.source = &tensor;
    reading.plan.rule = "unscaled";
    reading.plan.layout = "fp8-unscaled";
    reading.plan.coding = Coding::kFloat;
    reading.plan.code_dtype = tensor.dtype;
    reading.plan.name = tensor.name;
    reading.plan.shape = tensor.shape;
    reading.findings.push_back({"checkpoint.assumed_scale", cat(source_.label(tensor), " has no scale; 1 is assumed")});
    return adopt(std::move(reading));
  }

  Status adopt(Reading reading) {
    TensorPlan& plan = reading.plan;
    const std::string relabelled = source_.assumed("e4m3");
    if (relabelled == "fnuz" && plan.code_dtype == DType::kE4M3FN) plan.code_dtype = DType::kE4M3FNUZ;
    if (relabelled == "fn" && plan.code_dtype == DType::kE4M3FNUZ) plan.code_dtype = DType::kE4M3FN;
    if (!reading.marker) INVAR_TRY(fold_factors(source_, &reading));
    for (const ScaleTerm& scale : plan.scales) {
      used_.insert(scale.tensor);
      layout_.dropped.push_back({scale.tensor, "scale", plan.source->name});
    }
    for (const TensorInfo* helper : plan.helpers) {
      // A helper may serve several weights, as fused projections share an order of columns.
      if (used_.insert(helper).second) layout_.dropped.push_back({helper, "scale", plan.source->name});
    }
    layouts_.insert(plan.layout);
    if (reading.marker) {
      used_.insert(plan.source);
      layout_.dropped.push_back({plan.source, "drop", ""});
      return {};
    }
    for (Finding& finding : reading.findings) layout_.findings.push_back(std::move(finding));
    planned_.insert(plan.source);
    layout_.tensors.push_back(std::move(plan));
    return {};
  }

  Status account_for_the_rest() {
    const bool has_quantized = !planned_.empty();
    for (const TensorInfo& tensor : source_.folder.tensors()) {
      if (planned_.count(&tensor) != 0 || used_.count(&tensor) != 0) continue;
      if (passed_over_.count(&tensor) != 0) {
        layout_.dropped.push_back({&tensor, "drop", ""});
        continue;
      }
      // Transformer Engine's histories, pickled; ComfyUI's notes on a layer, as JSON text. Neither is a number.
      if (tensor.name.ends_with("._extra_state") ||
          (has_quantized && tensor.dtype == DType::kU8 && tensor.name.ends_with(".comfy_quant"))) {
        layout_.dropped.push_back({&tensor, "drop", ""});
        continue;
      }
      if (has_quantized && is_float(tensor.dtype) && is_activation_scale_name(tensor.name)) {
        layout_.dropped.push_back({&tensor, "drop", ""});
        continue;
      }
      const bool is_scale =
          is_weight_scale_name(tensor.name) || (tensor.dtype == DType::kE8M0 && tensor.name.ends_with("scale"));
      if ((has_quantized || source_.declared.quantized) && is_scale) {
        if (source_.assumed("unused_scale") != "drop") {
          return Error(
              Code::kDataLoss, "checkpoint.unused_scale",
              cat(source_.label(tensor), " is named as a weight's scale and no low-bit weight uses it; if it is ",
                  "left over, state --assume unused_scale=drop"));
        }
        layout_.dropped.push_back({&tensor, "drop", ""});
        continue;
      }
      TensorPlan plan;
      plan.source = &tensor;
      plan.name = tensor.name;
      plan.shape = tensor.shape;
      layout_.tensors.push_back(std::move(plan));
    }
    return {};
  }

  void finish() {
    const auto by_name = [](const auto& a, const auto& b) { return a.source->name < b.source->name; };
    std::sort(layout_.tensors.begin(), layout_.tensors.end(), by_name);
    std::sort(layout_.dropped.begin(), layout_.dropped.end(), by_name);
    layouts_.erase("");
    for (const std::string& name : layouts_) layout_.name += (layout_.name.empty() ? "" : "+") + name;
    if (layout_.name.empty()) layout_.name = "none";
    layout_.model_type = source_.declared.model_type;
    layout_.quant_method = source_.declared.method;
    layout_.producer = guess_producer(source_.declared, layout_.name);
    for (const Finding& finding : source_.folder.findings()) layout_.findings.push_back(finding);
    if (source_.declared.quantized && planned_.empty()) {
      layout_.findings.push_back(
          {"checkpoint.nothing_quantized",
           cat(join_path(source_.folder.path(), source_.declared.file), ": declares quantisation (quant_method \"",
               source_.declared.method, "\") but no tensor is stored in a low-bit dtype; the dtypes decide")});
    }
  }

  LayoutSource source_;
  Layout layout_;
  std::set<const TensorInfo*> planned_, used_, passed_over_;
  std::set<std::string> layouts_;
};

}  // namespace

int64_t ScaleGrid::scale_row(int64_t matrix_row) const {
  const int64_t matrix = rows == 0 ? 0 : matrix_row / rows;
  const int64_t row = rows == 0 ? 0 : matrix_row % rows;
  int64_t grid_row = row / block_rows;
  if (!row_ends.empty()) {
    grid_row = std::upper_bound(row_ends.begin(), row_ends.end(), row) - row_ends.begin();
  }
  return ((shared ? 0 : matrix * grid_rows) + grid_row) * grid_cols;
}

int64_t TensorPlan::stored_bytes(int64_t count) const {
  if (coding == Coding::kPackedFp4) return count / 2;
  if (coding != Coding::kDecoder) return bytes_of(source->dtype, count);
  const int64_t elements = element_count(shape);
  if (elements == 0) return 0;
  return static_cast<int64_t>(static_cast<double>(source->byte_size()) / static_cast<double>(elements) *
                              static_cast<double>(count));
}

const TensorPlan* Layout::find(std::string_view source_name) const {
  const auto it =
      std::lower_bound(tensors.begin(), tensors.end(), source_name,
                       [](const TensorPlan& plan, std::string_view wanted) { return plan.source->name < wanted; });
  return it != tensors.end() && it->source->name == source_name ? &*it : nullptr;
}

std::string assumption_help() {
  std::string text;
  for (const AssumeKey& line : kAssumeKeys) text += cat(text.empty() ? "" : ", ", line.key, "=(", line.values, ")");
  return text;
}

Result<Layout> classify(const CheckpointFolder& folder, const Assumptions& assume) {
  INVAR_TRY(check_assumptions(assume));
  INVAR_ASSIGN(const Declared declared, read_declared(folder));
  return Classifier(folder, declared, assume).run();
}

}  // namespace invar
