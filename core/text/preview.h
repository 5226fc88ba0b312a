// What training sees of data files: the first samples token by token, each with its mark, and counts.
// Thread rule: pure functions over their arguments and files.
#pragma once

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/text/tokenizer.h"
#include "invar/v1/text.pb.h"

namespace invar {

// config: resolved. tokenizer: what the config means.
Result<v1::PreviewReport> preview_data(const v1::PreviewConfig& config, const Tokenizer& tokenizer, FileSystem& files,
                                       const CancelFlag* cancel);

}  // namespace invar
