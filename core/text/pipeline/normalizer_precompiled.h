// Precompiled: the character map of a SentencePiece model, a double-array trie of byte strings and their replacements.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "core/text/pipeline/stages.h"

namespace invar {

// "precompiled_charsmap" in base64.
Result<std::unique_ptr<Normalizer>> make_precompiled_normalizer(const Json& json);
// The map's bytes as a SentencePiece model holds them; empty maps nothing.
// whole_prefix: the longest entry at each place is replaced, as SentencePiece does; else, as in tokenizer.json files,
// an entry replaces a user-perceived character of up to five bytes, or a single code point.
Result<std::unique_ptr<Normalizer>> make_precompiled_normalizer(std::string bytes, bool whole_prefix);

}  // namespace invar
