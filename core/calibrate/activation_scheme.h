// How a server quantises the input of a product with FP8 weights, as the checkpoint declares it.
//
// The model emulates it (ModelOptions::served_input): codes and FP32 scales are those of the server's rule, code times
// scale is rounded once to FP32, and products are FP32, so that the result is the FP8 product with FP32 accumulation
// to within its own rounding.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "core/base/status.h"
#include "core/checkpoint/declared.h"
#include "core/checkpoint/layout.h"
#include "core/model/model.h"

namespace invar {

struct ActivationScheme {
  ServedInput input;  // kNone: the input stays as it is
  std::string why;    // not empty: quantised in a way that cannot be emulated, and which

  // "e4m3 per token": for people.
  std::string words() const;
};

// Of the product with the weight `plan`; no scheme for weights that are not quantised. "checkpoint.bad_config" when a
// static scale is declared and not stored, "checkpoint.scale_shape" when it is not one positive number.
Result<ActivationScheme> activation_scheme(const CheckpointFolder& folder, const Declared& declared,
                                           const TensorPlan& plan);

}  // namespace invar
