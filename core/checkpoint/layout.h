// What every stored tensor of a checkpoint means: exactly one rule for each, found from headers before anything is
// written, or an error that says what does not fit.
//
//   INVAR_ASSIGN(auto folder, CheckpointFolder::open(files, path));
//   INVAR_ASSIGN(auto layout, classify(folder, {}));
//   for (const TensorPlan& plan : layout.tensors) ...
//
// dtypes and names decide, config.json only helps: it gives block sizes and strategies, never whether a tensor is
// quantised. A low-bit weight without exactly one reading is an error, and so is a weight scale that no weight uses.
// Block sizes are declared, never found by dividing shapes.
//
// reasons:
//   checkpoint.missing_scale    a low-bit weight has no scale
//   checkpoint.unused_scale     a weight scale belongs to no low-bit weight
//   checkpoint.scale_shape      the scale's shape is not what the declared layout needs
//   checkpoint.ambiguous_scale  several readings fit, or none that is declared; the message says which --assume settles
//   it checkpoint.unsupported_layout  the layout is known but cannot be read yet checkpoint.bad_config config.json
//   declares something that cannot be
// Thread rule: values; build once, read from anywhere.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/decoder.h"
#include "core/checkpoint/producer.h"
#include "core/container/checkpoint_folder.h"

namespace invar {

// How one scale tensor lies over a weight seen as [matrices, rows, cols].
struct ScaleGrid {
  int64_t matrices = 1, rows = 1, cols = 1;
  int64_t block_rows = 1, block_cols = 1;  // the last block of a row or column may be shorter
  int64_t grid_rows = 1, grid_cols = 1;    // scales for each matrix
  bool shared = false;                     // one grid for all matrices
  std::vector<int64_t> row_ends;           // fused weights: part i ends before this row; grid_rows parts

  // Index into the scale tensor for the first column of `row`, counted over all matrices.
  int64_t scale_row(int64_t matrix_row) const;
  bool operator==(const ScaleGrid&) const = default;
};

// How stored bytes become values.
enum class Coding {
  kCopy,       // stay as they are
  kFloat,      // one 8-bit float an element (code_dtype)
  kPackedFp4,  // two E2M1 codes a byte along the last dimension, low nibble first
  kDecoder,    // by TensorPlan::decoder
};

struct ScaleTerm {
  const TensorInfo* tensor = nullptr;
  DType dtype = DType::kUnspecified;  // as it is read: U8 may mean E8M0
  bool divides = false;               // the stored number is the quantiser's, not its inverse
  ScaleGrid grid;
};

// What becomes of one stored tensor that reaches the result.
struct TensorPlan {
  const TensorInfo* source = nullptr;
  std::string rule = "copy";  // "copy", "tensor_scale", "row_scale", "block_scale", "unscaled"
  std::string layout;         // the producer's layout, "fp8-block-scale-inv"; empty for copies
  Coding coding = Coding::kCopy;
  DType code_dtype = DType::kUnspecified;
  std::vector<ScaleTerm> scales;           // the second, if any, is one number for the whole tensor
  std::shared_ptr<const Decoder> decoder;  // of kDecoder; its helper tensors are in `helpers`
  std::vector<const TensorInfo*> helpers;  // used up beside the scales: zero points, code books, shapes
  std::string name;                        // in the result
  std::vector<int64_t> shape;

  bool quantized() const { return coding != Coding::kCopy; }
  bool decodes() const { return coding == Coding::kDecoder; }
  // Stored bytes of `count` elements of `shape`; a run of packed elements begins and ends on whole bytes. Of kDecoder
  // only their share, for progress.
  int64_t stored_bytes(int64_t count) const;
};

// A stored tensor that is not in the result.
struct DroppedTensor {
  const TensorInfo* source = nullptr;
  std::string rule;   // "scale" (used up), "drop" (activation and cache scales)
  std::string owner;  // the weight, for "scale"
};

struct Layout {
  std::string name;  // the layout of the quantised tensors: "none", one name, or several joined by "+"
  std::string model_type;
  std::string quant_method;
  Producer producer;
  std::vector<TensorPlan> tensors;     // sorted by source name
  std::vector<DroppedTensor> dropped;  // sorted by source name
  std::vector<Finding> findings;

  const TensorPlan* find(std::string_view source_name) const;
};

// Answers to questions that the files leave open: "block" = "128x128".
using Assumptions = std::map<std::string, std::string>;

// The keys of Assumptions with what they take, for messages and help.
std::string assumption_help();

// Pointers in the result point into `folder`, which must outlive it and not move.
Result<Layout> classify(const CheckpointFolder& folder, const Assumptions& assume);

}  // namespace invar
