// A LoRA adapter in PEFT's folder format, as changes of the base's tensors.
//
//   INVAR_ASSIGN(auto adapter, Adapter::open(files, "my-adapter"));
//   for (const AdapterChange& change : adapter.changes()) ...      // "model.layers.0.self_attn.q_proj.weight"
//   INVAR_TRY(adapter.add_rows(change, weight, base_values, first_row, rows));
//
// W' = W + scaling B A, scaling = alpha / rank (rank-stabilised: alpha / sqrt(rank)); of DoRA every output's row of W'
// is brought to its stored length: W'_o = m_o (W + scaling B A)_o / |(W + scaling B A)_o|. Formulas: Hu et al. 2021
// (2106.09685), Kalajdzievski 2023 (2312.03732), Liu et al. 2024 (2402.09353).
// reasons:
//   adapter.bad_config    adapter_config.json is missing or declares something that cannot be
//   adapter.unsupported   it declares another kind of adapter; the message names the field
//   adapter.bad_tensor    a tensor has no partner, another shape than it must, or no known meaning
// Thread rule: immutable once open; factors_of() and the functions on Factors from any thread.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/container/checkpoint_folder.h"

namespace invar {

// What an adapter does to one tensor of its base.
struct AdapterChange {
  std::string name;  // of the base's tensor
  std::string rule;  // "lora", "dora", "replaced"
  // lora, dora: A [rank, inputs], B [outputs, rank], DoRA's magnitudes [outputs].
  const TensorInfo *a = nullptr, *b = nullptr, *magnitudes = nullptr;
  bool transposed = false;  // the base's tensor is [inputs, outputs]: embeddings, and what declares fan_in_fan_out
  double scaling = 0;
  const TensorInfo* whole = nullptr;  // replaced

  int64_t rank() const { return a == nullptr ? 0 : a->shape[0]; }
  // The shape the base's tensor must have.
  std::vector<int64_t> shape() const;
};

// The matrices of one change, widened to FP32.
class Factors {
 public:
  // Adds `weight` times the change to whole rows of the base, [first, first + rows) of them.
  void apply(double weight, int64_t first, std::span<float> values) const;

 private:
  friend class Adapter;
  std::vector<float> a_, b_, magnitudes_;
  int64_t rank_ = 0, inputs_ = 0, outputs_ = 0;
  bool transposed_ = false;
  double scaling_ = 0;
};

class Adapter {
 public:
  static Result<Adapter> open(FileSystem& files, const std::string& path);

  const std::vector<AdapterChange>& changes() const { return changes_; }  // sorted by name
  const CheckpointFolder& folder() const { return *folder_; }
  Result<Factors> factors_of(const AdapterChange& change) const;

 private:
  std::shared_ptr<const CheckpointFolder> folder_;  // changes_ point into it
  std::vector<AdapterChange> changes_;
};

}  // namespace invar
