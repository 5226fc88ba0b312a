// Replace: every match of a text or a regular expression becomes a fixed text.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "core/text/pipeline/stages.h"

namespace invar {

Result<std::unique_ptr<Normalizer>> make_replace_normalizer(const Json& json);

// Every `from` in `text` becomes `to`, from left to right; an empty `from` changes nothing.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

}  // namespace invar
