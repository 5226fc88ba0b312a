// Which output file each tensor goes to, and the index that says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/container/tensor_info.h"

namespace invar {

struct Shard {
  std::string file_name;
  std::vector<TensorSpec> tensors;
};

struct ShardPlan {
  std::vector<Shard> shards;

  // Fills shards in the order given until the next tensor would exceed `max_bytes` (a larger tensor gets a shard of
  // its own). One shard is "model.safetensors", several are "model-00001-of-00003.safetensors".
  // max_bytes <= 0: one shard.
  static ShardPlan by_size(std::vector<TensorSpec> tensors, int64_t max_bytes, const std::string& prefix = "model");

  // Keeps the files of the source: tensor i goes to file_names[file_of[i]]. Files that get no tensor are left out.
  static ShardPlan by_source(std::vector<TensorSpec> tensors, const std::vector<int>& file_of,
                             const std::vector<std::string>& file_names);

  // False for a single model.safetensors, which loaders find without one.
  bool needs_index() const { return shards.size() != 1 || shards[0].file_name != "model.safetensors"; }
  int64_t total_bytes() const;
  // The text of model.safetensors.index.json: total_size is the sum of the tensors' bytes, names are sorted.
  std::string index_text() const;
};

// Writes `folder`/model.safetensors.index.json when the plan needs one.
Status write_index(FileSystem& files, const std::string& folder, const ShardPlan& plan);

}  // namespace invar
