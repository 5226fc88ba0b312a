// The part of convert() that writes FP8: any readable checkpoint, quantised by the rules of quantized_writer.h.
#pragma once

#include "core/checkpoint/convert.h"

namespace invar {

// `config` is checked and complete; its target is one of the FP8 formats. Linear weights are quantised, other float
// tensors keep their dtype (dequantised ones become BF16). convert.unsupported_option for what this target cannot do
// (rounding fp64, nan_policy keep), checkpoint.unsupported_layout for tensors that are not floating-point.
Result<v1::ConvertReport> convert_quantized(const v1::ConvertConfig& config, const WorkContext& context);

}  // namespace invar
