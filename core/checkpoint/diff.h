// Two checkpoints in any formats that can be read, tensor by tensor: names, shapes, dtypes and values.
#pragma once

#include "core/checkpoint/convert.h"

namespace invar {

// With config.decode quantised tensors are compared by value and scales are no tensors of their own; without it the
// stored bytes are compared. DiffReport::tensors lists what differs, each with its kind: another shape, another dtype,
// other values. Measures are there only where elements could be compared. Tensors of equal value in different dtypes
// are listed with `different` 0 and do not spoil `identical`.
Result<v1::DiffReport> diff(const v1::DiffConfig& config, const WorkContext& context);

}  // namespace invar
