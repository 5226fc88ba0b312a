#include "core/checkpoint/inspect.h"

#include <map>

#include "core/base/glob.h"
#include "core/checkpoint/declared.h"
#include "core/checkpoint/layout.h"
#include "core/config/config.h"

namespace invar {
namespace {

struct Meaning {
  std::string rule;
  std::vector<std::string> scales;
  int64_t parameters = 0;  // what the tensor adds to the model's size
};

template <typename Line>
void count(Line* line, const TensorInfo& tensor) {
  line->set_tensors(line->tensors() + 1);
  line->set_elements(line->elements() + element_count(tensor.shape));
  line->set_bytes(line->bytes() + tensor.byte_size());
}

}  // namespace

Result<v1::InspectReport> inspect(const v1::InspectConfig& given, FileSystem& files) {
  INVAR_TRY(config::check(given));
  const v1::InspectConfig config = config::with_defaults(given);
  INVAR_ASSIGN(const CheckpointFolder folder, CheckpointFolder::open(files, config.path()));
  v1::InspectReport report;
  report.set_path(config.path());
  report.set_container(std::string(folder.format()));
  const auto layout = classify(folder, Assumptions(config.assume().begin(), config.assume().end()));
  std::map<const TensorInfo*, Meaning> meanings;
  if (layout.ok()) {
    report.set_layout(layout->name);
    report.set_model_type(layout->model_type);
    report.set_quant_method(layout->quant_method);
    if (!layout->producer.name.empty()) {
      report.set_producer(layout->producer.name);
      report.set_producer_reason(layout->producer.reason);
    }
    for (const TensorPlan& plan : layout->tensors) {
      Meaning& meaning = meanings[plan.source];
      meaning.rule = plan.rule;
      meaning.parameters = element_count(plan.shape);
      for (const ScaleTerm& scale : plan.scales) meaning.scales.push_back(scale.tensor->name);
    }
    for (const DroppedTensor& dropped : layout->dropped) meanings[dropped.source] = {dropped.rule, {}, 0};
    for (const Finding& finding : layout->findings) report.add_warnings(cat(finding.reason, ": ", finding.message));
  } else {
    if (layout.status().code() == Code::kInvalidArgument) return layout.status();
    report.add_warnings(cat(layout.status().reason(), ": ", layout.status().message()));
    if (const auto declared = read_declared(folder); declared.ok()) {
      report.set_model_type(declared->model_type);
      report.set_quant_method(declared->method);
    }
    for (const Finding& finding : folder.findings()) report.add_warnings(cat(finding.reason, ": ", finding.message));
  }
  std::map<DType, v1::DTypeCount> dtypes;
  std::map<std::string, v1::RuleCount> rules;
  int64_t parameters = 0, bytes = 0;
  for (const TensorInfo& tensor : folder.tensors()) {
    const auto it = meanings.find(&tensor);
    const Meaning meaning = it == meanings.end() ? Meaning{"", {}, element_count(tensor.shape)} : it->second;
    v1::DTypeCount& dtype = dtypes[tensor.dtype];
    dtype.set_dtype(static_cast<v1::DType>(tensor.dtype));
    count(&dtype, tensor);
    if (!meaning.rule.empty()) {
      v1::RuleCount& rule = rules[meaning.rule];
      rule.set_rule(meaning.rule);
      count(&rule, tensor);
    }
    bytes += tensor.byte_size();
    parameters += meaning.parameters;
    if (!config.tensors() || (!config.names().empty() && !glob_match(config.names(), tensor.name))) continue;
    v1::TensorInfo& line = *report.add_tensor();
    line.set_name(tensor.name);
    line.set_dtype(static_cast<v1::DType>(tensor.dtype));
    for (int64_t size : tensor.shape) line.add_shape(size);
    line.set_file(folder.file_name(tensor));
    line.set_offset(tensor.begin);
    line.set_bytes(tensor.byte_size());
    if (!meaning.rule.empty()) line.set_rule(meaning.rule);
    for (const std::string& scale : meaning.scales) line.add_scales(scale);
  }
  report.set_files(static_cast<int64_t>(folder.files().size()));
  report.set_tensors(static_cast<int64_t>(folder.tensors().size()));
  report.set_parameters(parameters);
  report.set_bytes(bytes);
  for (const auto& [dtype, line] : dtypes) *report.add_dtypes() = line;
  for (const auto& [rule, line] : rules) *report.add_rules() = line;
  for (const auto& file : folder.files()) {
    for (const auto& [key, value] : file->metadata()) (*report.mutable_metadata())[key] = value;
  }
  return report;
}

}  // namespace invar
