// Cutting pieces at matches, in the five ways a tokenizer.json names.
// Thread rule: pure functions.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/text/pipeline/stages.h"

namespace invar {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// "Isolated" and so on.
Result<SplitBehavior> split_behavior(const Json& json);

// Appends what the piece `whole` becomes when cut at `matches`, which lie in it and rise. invert: what lies between
// the matches counts as match. No empty piece is appended.
void split_at(const TextRange& whole, std::span<const TextRange> matches, SplitBehavior behavior, bool invert,
              std::vector<TextRange>* out);

// Cuts every piece at the matches of `regex`.
void split_by_regex(Pieces* pieces, const Regex& regex, SplitBehavior behavior, bool invert, Scratch& scratch);

// Cuts every piece at the characters for which is_match(code point) is true.
void split_by_character(Pieces* pieces, bool (*is_match)(uint32_t), SplitBehavior behavior, Scratch& scratch);

}  // namespace invar
