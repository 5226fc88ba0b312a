// Token embedding into the FP32 residual stream. Thread rule: as the context.
#pragma once

#include "core/nn/context.h"

namespace invar {

// ids: I32 [tokens], device memory, each below the table's rows. out: FP32 [tokens, hidden], the rows times scale.
Status embedding_forward(Context& ctx, WeightId table, const int32_t* ids, const Matrix& out, float scale);
Status embedding_backward(Context& ctx, WeightId table, const int32_t* ids, const Matrix& d_out, float scale);

}  // namespace invar
