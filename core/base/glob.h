// Shell-style name patterns: `*` any run of characters (dots and slashes too), `?` one character.
#pragma once

#include <string_view>

namespace invar {

// True when the whole of `text` matches `pattern`. Linear in text times pattern at worst, no recursion.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace invar
