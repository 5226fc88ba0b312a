// The part of verify() for results in FP8: every scale and every code is made again from the source's values with the
// scalar codecs, and must be the stored one. Whatever the rule does not explain is a problem.
// Thread rule: functions; the sink is called from one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/checkpoint/convert.h"
#include "core/checkpoint/layout.h"

namespace invar {

// A finding, as in VerifyProblem.
using ProblemSink =
    std::function<void(const std::string& tensor, std::string_view kind, std::string detail, int64_t mismatched)>;

// True when the result stores weights of the source as 8-bit floats.
bool is_quantized_result(const Layout& source, const CheckpointFolder& result);

// Fills the counts of `report`; what differs goes to `problem`.
Status verify_quantized(const v1::VerifyConfig& config, const CheckpointFolder& source, const Layout& source_layout,
                        const CheckpointFolder& result, const WorkContext& context, const ProblemSink& problem,
                        v1::VerifyReport* report);

}  // namespace invar
