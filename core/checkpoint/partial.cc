#include "core/checkpoint/partial.h"

#include <algorithm>
#include <set>

#include "core/base/glob.h"

namespace invar {
namespace {

constexpr std::string_view kWeight = ".weight";

TensorPlan kept(const TensorInfo* source, std::string_view rule) {
  TensorPlan plan;
  plan.source = source;
  plan.rule = rule;
  plan.name = source->name;
  plan.shape = source->shape;
  return plan;
}

}  // namespace

std::string module_of(std::string_view weight) {
  if (weight.ends_with(kWeight)) weight.remove_suffix(kWeight.size());
  return std::string(weight);
}

Status keep_all_but(const std::vector<std::string>& patterns, const CheckpointFolder& folder, Layout* layout,
                    std::vector<std::string>* converted) {
  if (folder.format() != "safetensors") {
    return Error(Code::kInvalidArgument, "convert.partial_needs_safetensors",
                 cat("only: ", folder.path(), " holds ", folder.format(),
                     " files; a part of a checkpoint can be converted where the rest can stay as it is stored, in "
                     "safetensors; leave `only` out"));
  }
  std::set<std::string> modules;
  std::set<const TensorInfo*> still_used;
  std::vector<bool> matched(patterns.size(), false);
  for (TensorPlan& plan : layout->tensors) {
    if (!plan.quantized()) continue;
    const std::string module = module_of(plan.source->name);
    bool selected = false;
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (!glob_match(patterns[i], plan.source->name) && !glob_match(patterns[i], plan.name) &&
          !glob_match(patterns[i], module)) {
        continue;
      }
      matched[i] = selected = true;
    }
    if (selected) {
      modules.insert(module);
      continue;
    }
    for (const ScaleTerm& scale : plan.scales) still_used.insert(scale.tensor);
    for (const TensorInfo* helper : plan.helpers) still_used.insert(helper);
    plan = kept(plan.source, "kept");
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (matched[i]) continue;
    return Error(Code::kInvalidArgument, "convert.pattern_matches_nothing",
                 cat("only: ", in_quotes(patterns[i]), " matches no quantised weight of ", folder.path(),
                     "; `invar inspect` lists the names"));
  }
  const auto stays = [&](const DroppedTensor& dropped) {
    if (dropped.rule == "scale") return still_used.count(dropped.source) != 0;
    const std::string& name = dropped.source->name;
    return modules.count(name.substr(0, name.rfind('.'))) == 0;
  };
  const auto gone = std::stable_partition(layout->dropped.begin(), layout->dropped.end(),
                                          [&](const DroppedTensor& dropped) { return !stays(dropped); });
  for (auto it = gone; it != layout->dropped.end(); ++it) layout->tensors.push_back(kept(it->source, "kept"));
  layout->dropped.erase(gone, layout->dropped.end());
  std::sort(layout->tensors.begin(), layout->tensors.end(),
            [](const TensorPlan& a, const TensorPlan& b) { return a.source->name < b.source->name; });
  const bool all = std::none_of(layout->tensors.begin(), layout->tensors.end(),
                                [](const TensorPlan& plan) { return plan.rule == "kept"; });
  converted->clear();
  if (!all) converted->assign(modules.begin(), modules.end());
  return {};
}

}  // namespace invar
