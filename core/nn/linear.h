// The three products of a linear layer y = x W^T, each in the format its policy says.
//
// FP8 products are emulated exactly: an operand is quantised from its high-precision source for the product it enters,
// decoded to BF16 (every FP8 value is exact there), multiplied with FP32 accumulation; a scale that is no power of two
// is applied to the product. Thread rule: as the context.
#pragma once

#include "core/nn/context.h"

namespace invar {

// y = x W^T (+ add, which may be y itself; added in FP32 before y is rounded).
Status linear_forward(Context& ctx, WeightId weight, const Matrix& x, const Matrix& y, const Matrix* add = nullptr);
// dx = dy W.
Status linear_data_gradient(Context& ctx, WeightId weight, const Matrix& dy, const Matrix& dx);
// dW += dy^T x, straight into the FP32 main gradient.
Status linear_weight_gradient(Context& ctx, WeightId weight, const Matrix& dy, const Matrix& x);

// A bias as what linear_forward adds: one row for all.
Matrix bias_rows(Context& ctx, WeightId bias, int64_t rows, int64_t cols);
// db += column sums of dy: a product with a row of ones.
Status bias_gradient(Context& ctx, WeightId bias, const Matrix& dy);

}  // namespace invar
