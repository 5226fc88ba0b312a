// Proof that a converted checkpoint is what its source says, element by element.
//
// Everything is read again: the source's codes and scales, the result's values. The expected bits come from the scalar
// codecs of core/numerics, not from the code that wrote the result; every dequantised value must also encode back to
// its stored code (counted; results that the target cannot hold do not). Copied tensors must be equal byte for byte,
// no tensor may be missing or extra, the index must agree, and no config may still declare quantisation.
#pragma once

#include "core/checkpoint/convert.h"
#include "core/checkpoint/layout.h"

namespace invar {

// What differs is in the report (passed is false); errors are for folders that cannot be read or classified.
Result<v1::VerifyReport> verify(const v1::VerifyConfig& config, const WorkContext& context);

// The same for the folder that a conversion has made but not yet shown: a problem is checkpoint.verify_failed. The
// findings go to the conversion's report, under the destination's name.
Status verify_staged(const v1::ConvertConfig& config, const std::string& staged, const WorkContext& context,
                     v1::ConvertReport* report);

// The same for one file of it, while the files of the source that it came from are still there.
Status verify_written(const v1::ConvertConfig& config, const CheckpointFolder& source, const Layout& layout,
                      const std::string& file, const WorkContext& context, v1::VerifyReport* report);

}  // namespace invar
