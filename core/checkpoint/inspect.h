// What a checkpoint stores and what conversion would do with it, by reading headers only.
#pragma once

#include "core/base/file.h"
#include "core/base/status.h"
#include "invar/v1/inspect.pb.h"

namespace invar {

// A folder that can be read but not classified is reported all the same: the reason is a warning and the rules are
// left out. Errors are for files that cannot be read.
Result<v1::InspectReport> inspect(const v1::InspectConfig& config, FileSystem& files);

}  // namespace invar
