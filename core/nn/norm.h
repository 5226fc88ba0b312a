// RMSNorm of the FP32 residual stream. Zhang and Sennrich 2019. Thread rule: as the context.
#pragma once

#include "core/nn/context.h"

namespace invar {

// y = x / rms(x) * gain; inv_rms: FP32 [rows] for the backward pass, or null.
Status norm_forward(Context& ctx, WeightId gain, float eps, const Matrix& x, const Matrix& y, float* inv_rms);
// residual_gradient (FP32) += gradient of x through y, or = when it holds nothing yet; `copy`: its value rounded to
// the activation dtype (the same memory when that is FP32).
Status norm_backward(Context& ctx, WeightId gain, const Matrix& dy, const Matrix& x, const float* inv_rms,
                     const Matrix& residual_gradient, bool accumulate, const Matrix& copy);

}  // namespace invar
