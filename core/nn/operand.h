// An operand of a product in the format the policy says. Thread rule: as the context.
#pragma once

#include "core/nn/context.h"

namespace invar {

struct Operand {
  Matrix matrix;  // the source itself, or its quantised values decoded to BF16
  float scale_inv = 1.0f;
  ArenaBlock decoded, scale;  // memory behind it, when quantised
};

Result<Operand> make_operand(Context& ctx, const Matrix& source, const OperandFormat& format);

// Quantises `source` into `decoded` (BF16). scale_inv receives one float for scales that are no powers of two, and may
// be null for those that are (they are folded in).
invar_quantize_args quantize_args(const Matrix& source, const OperandFormat& format, const Matrix& decoded,
                                  float* scale_inv);

}  // namespace invar
