// The table of layouts. A layout is one file in this folder and one line in rules.cc: a function that looks at one
// stored tensor and adds a reading when the tensor could mean that.
#pragma once

#include <string>
#include <vector>

#include "core/checkpoint/declared.h"
#include "core/checkpoint/layout.h"

namespace invar {

// What a rule may look at.
struct LayoutSource {
  const CheckpointFolder& folder;
  const Declared& declared;
  const Assumptions& assume;

  // The assumed answer; empty when there is none.
  std::string assumed(const char* key) const {
    const auto it = assume.find(key);
    return it == assume.end() ? std::string() : it->second;
  }
  // The block size that is declared or assumed.
  std::optional<BlockSize> block() const;
  std::string label(const TensorInfo& tensor) const;  // file: tensor "name"
};

// One way to read a tensor, or (failed status) why the tensor, which is clearly meant that way, cannot be read.
struct Reading {
  TensorPlan plan;
  bool declared = false;  // a config declares it; undeclared readings count only where none is declared
  Status status;
  std::vector<Finding> findings;
  bool marker = false;  // the tensor itself is only a sign of the layout and is left out
};

using LayoutRule = void (*)(const LayoutSource& source, const TensorInfo& tensor, std::vector<Reading>* readings);

// The table, most specific first.
const std::vector<LayoutRule>& layout_rules();

// The rules.
void block_scale_inv_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void compressed_float_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void tensor_scale_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void row_scale_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void renamed_block_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void power_of_two_values_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void scale_weight_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void torchao_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void dot_scale_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void modelopt_block_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void packed_fp4_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void gguf_block_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void bitsandbytes_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void compressed_integer_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void gpt_oss_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);
void unsupported_rule(const LayoutSource&, const TensorInfo&, std::vector<Reading>*);

// What is done to a reading once it is chosen: factors beside the weight that belong into it (folded_factors.cc).
Status fold_factors(const LayoutSource& source, Reading* reading);

// Helpers for rules.

// "x.weight" gives "x"; a name without that ending is returned whole.
std::string_view module_of(std::string_view weight_name);
// The names under which a scale of the weight `name` may be stored, most usual first.
std::vector<std::string> scale_names(std::string_view name);
// The dtype `scale` is read as, or the error. U8 is E8M0 only where `power_of_two_bytes` says so.
Result<DType> scale_dtype(const LayoutSource& source, const TensorInfo& scale, bool power_of_two_bytes);

// Grids for `weight`, whose last two dimensions are [rows, cols].
ScaleGrid tensor_grid(const TensorInfo& weight);
ScaleGrid row_grid(const TensorInfo& weight);
ScaleGrid block_grid(const TensorInfo& weight, BlockSize block);
// The shape a scale with this grid is expected to have: [grid_rows, grid_cols], with the matrices in front.
std::vector<int64_t> grid_shape(const TensorInfo& weight, const ScaleGrid& grid);
bool is_single(const TensorInfo& scale);  // one element, any rank

// A reading of an 8-bit float weight with one scale tensor.
Reading float_reading(const LayoutSource& source, const TensorInfo& weight, const TensorInfo& scale, ScaleGrid grid,
                      std::string rule, std::string layout, bool declared, bool power_of_two_bytes);
// A reading through a decoder; `shape` and `name` of the result. Scales and helpers are added by the rule.
Reading decoder_reading(const TensorInfo& weight, std::string rule, std::string layout, std::string name,
                        std::vector<int64_t> shape, std::shared_ptr<const Decoder> decoder);
// The same as float_reading, failed.
Reading failed_reading(const TensorInfo& weight, std::string layout, bool declared, Status status);
Status scale_shape_error(const LayoutSource& source, const TensorInfo& weight, const TensorInfo& scale,
                         const ScaleGrid& grid, std::string_view why);

}  // namespace invar
