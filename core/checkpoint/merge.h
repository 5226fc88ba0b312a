// Folds an adapter into its base: a folder that serves without the adapter.
//
//   INVAR_ASSIGN(auto report, merge(config, {files, pool, cancel, progress}));
//
// FP32 arithmetic, one rounding to the base's dtype; low-bit weights of the base are decoded first and become BF16.
// Tensors that the adapter does not name keep their bytes. The destination appears complete or not at all.
// reasons: those of adapter.h, layout.h and the containers, and adapter.no_such_weight: the base has no such tensor, or
// one of another shape.
#pragma once

#include "core/checkpoint/convert.h"
#include "invar/v1/merge.pb.h"

namespace invar {

Result<v1::MergeReport> merge(const v1::MergeConfig& config, const WorkContext& context);

}  // namespace invar
