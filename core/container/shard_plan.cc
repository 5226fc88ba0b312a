#include "core/container/shard_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace invar {
namespace {

std::string padded(size_t number) {
  std::string digits = std::to_string(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

}  // namespace

ShardPlan ShardPlan::by_size(std::vector<TensorSpec> tensors, int64_t max_bytes, const std::string& prefix) {
  ShardPlan plan;
  int64_t filled = 0;
  for (TensorSpec& tensor : tensors) {
    const int64_t bytes = bytes_of(tensor.dtype, element_count(tensor.shape));
    const bool full = max_bytes > 0 && !plan.shards.empty() && filled > 0 && bytes > max_bytes - filled;
    if (plan.shards.empty() || full) {
      plan.shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    plan.shards.back().tensors.push_back(std::move(tensor));
  }
  if (plan.shards.empty()) plan.shards.emplace_back();
  const size_t count = plan.shards.size();
  for (size_t i = 0; i < count; ++i) {
    plan.shards[i].file_name =
        count == 1 ? prefix + ".safetensors" : cat(prefix, "-", padded(i + 1), "-of-", padded(count), ".safetensors");
  }
  return plan;
}

ShardPlan ShardPlan::by_source(std::vector<TensorSpec> tensors, const std::vector<int>& file_of,
                               const std::vector<std::string>& file_names) {
  assert(tensors.size() == file_of.size());
  ShardPlan plan;
  for (const std::string& name : file_names) plan.shards.push_back({name, {}});
  for (size_t i = 0; i < tensors.size(); ++i) {
    plan.shards[static_cast<size_t>(file_of[i])].tensors.push_back(std::move(tensors[i]));
  }
  std::erase_if(plan.shards, [](const Shard& shard) { return shard.tensors.empty(); });
  return plan;
}

int64_t ShardPlan::total_bytes() const {
  int64_t total = 0;
  for (const Shard& shard : shards) {
    for (const TensorSpec& tensor : shard.tensors) total += bytes_of(tensor.dtype, element_count(tensor.shape));
  }
  return total;
}

std::string ShardPlan::index_text() const {
  nlohmann::json map = nlohmann::json::object();
  for (const Shard& shard : shards) {
    for (const TensorSpec& tensor : shard.tensors) map[tensor.name] = shard.file_name;
  }
  nlohmann::json index;
  index["metadata"]["total_size"] = total_bytes();
  index["weight_map"] = std::move(map);
  return index.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Status write_index(FileSystem& files, const std::string& folder, const ShardPlan& plan) {
  if (!plan.needs_index()) return {};
  return write_text_atomically(files, join_path(folder, "model.safetensors.index.json"), plan.index_text());
}

}  // namespace invar
