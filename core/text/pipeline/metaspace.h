// Metaspace: spaces written as a visible character, one before the text, and words cut before each.
// Thread rule: pure functions.
#pragma once

#include "core/text/pipeline/stages.h"

namespace invar {

Result<std::unique_ptr<PreTokenizer>> make_metaspace_pre_tokenizer(const Json& json);
Result<std::unique_ptr<Decoder>> make_metaspace_decoder(const Json& json);

}  // namespace invar
