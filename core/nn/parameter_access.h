// How layers reach parameters: by number, never by a pointer of their own.
//
// Behind this interface the owner may gather shards, keep packed or quantised copies and merge adapters; no layer
// changes. A weight is one parameter or several that are used as one product (query, key, value; gate, up).
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/nn/matrix.h"
#include "core/precision/recipe.h"

namespace invar {

using WeightId = int32_t;

enum class WeightUse : int { kForward, kDataGradient };

// What a product multiplies with; valid until the next request.
struct WeightView {
  Matrix values;                 // [outputs, inputs]; not quantised
  const void* packed = nullptr;  // for matmul, in the direction of the use, quantised where the policy says; null: none
  float scale_inv = 1.0f;        // multiplies the product with `packed`
};

// Where the gradient of a weight goes.
struct GradientTarget {
  float* data = nullptr;
  bool accumulate = false;        // add to what is there; else overwrite
  double* sum_squares = nullptr;  // wanted after this contribution, or null
};

class ParameterAccess {
 public:
  virtual ~ParameterAccess() = default;
  // The whole stored matrix; embedding and head too.
  virtual Result<WeightView> weight(WeightId id, WeightUse use) = 0;
  virtual const float* gain(WeightId id) = 0;
  virtual const LinearPolicy& policy(WeightId id) const = 0;
  // Asked once before each contribution.
  virtual Result<GradientTarget> gradient(WeightId id) = 0;
  // For operations that can only add: zeroes the target first where it holds nothing yet.
  virtual Result<float*> gradient_to_add(WeightId id) = 0;
};

}  // namespace invar
