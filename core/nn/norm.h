// RMSNorm. Zhang and Sennrich 2019. Thread rule: as the context.
#pragma once

#include "core/nn/context.h"

namespace invar {

struct NormShape {
  float eps = 0;
  float gain_offset = 0;  // added to the stored gain
};

// y = x / rms(x) * gain; inv_rms: FP32 [rows] for the backward pass, or null.
Status norm_forward(Context& ctx, WeightId gain, const NormShape& shape, const Matrix& x, const Matrix& y,
                    float* inv_rms);
// residual_gradient (FP32) += gradient of x through y, or = when it holds nothing yet; `copy`: its value rounded to
// the activation dtype (the same memory when that is FP32).
Status norm_backward(Context& ctx, WeightId gain, const NormShape& shape, const Matrix& dy, const Matrix& x,
                     const float* inv_rms, const Matrix& residual_gradient, bool accumulate, const Matrix& copy);

// stream_out = stream + norm(branch), all [tokens, hidden]; the streams are FP32. inv_rms: FP32 [rows] or null.
Status branch_norm_forward(Context& ctx, WeightId gain, const NormShape& shape, const Matrix& branch,
                           const Matrix& stream, const Matrix& stream_out, float* inv_rms);
// d_branch = gradient through the norm; dy and d_branch in the activation dtype.
Status branch_norm_backward(Context& ctx, WeightId gain, const NormShape& shape, const Matrix& dy, const Matrix& branch,
                            const float* inv_rms, const Matrix& d_branch);

// Each row of x holds `heads` groups that are normalised alone, with one gain [cols / heads] for all. inv_rms: FP32
// [rows, heads] or null.
Status head_norm_forward(Context& ctx, WeightId gain, const NormShape& shape, int64_t heads, const Matrix& x,
                         const Matrix& y, float* inv_rms);
Status head_norm_backward(Context& ctx, WeightId gain, const NormShape& shape, int64_t heads, const Matrix& dy,
                          const Matrix& x, const float* inv_rms, const Matrix& dx);

}  // namespace invar
