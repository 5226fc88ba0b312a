#include "core/text/pipeline/split_pieces.h"

#include "core/text/pipeline/json_stage.h"
#include "core/text/pipeline/unicode.h"

namespace invar {
namespace {

struct Part {
  TextRange range;
  bool is_match;
};

// The parts of `whole`, matches and what lies between them.
std::vector<Part> parts_of(const TextRange& whole, std::span<const TextRange> matches, bool invert) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  size_t done = whole.begin;
  for (const TextRange& match : matches) {
    if (match.begin > done) parts.push_back({{done, match.begin}, invert});
    if (match.size() > 0) parts.push_back({match, !invert});
    done = match.end;
  }
  if (done < whole.end) parts.push_back({{done, whole.end}, invert});
  return parts;
}

}  // namespace

Result<SplitBehavior> split_behavior(const Json& json) {
  INVAR_ASSIGN(const std::string name, text_field(json, "behavior", "Isolated"));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return unsupported_stage(cat(stage_type(json), ": behavior"), name,
                           "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

void split_at(const TextRange& whole, std::span<const TextRange> matches, SplitBehavior behavior, bool invert,
              std::vector<TextRange>* out) {
  if (behavior == SplitBehavior::kIsolated) {  // the usual one, without a list of parts
    size_t done = whole.begin;
    for (const TextRange& match : matches) {
      if (match.begin > done) out->push_back({done, match.begin});
      if (match.size() > 0) out->push_back(match);
      done = match.end;
    }
    if (done < whole.end) out->push_back({done, whole.end});
    return;
  }
  const std::vector<Part> parts = parts_of(whole, matches, invert);
  const size_t first = out->size();
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const bool joins_last = out->size() > first;
    switch (behavior) {
      case SplitBehavior::kIsolated: break;
      case SplitBehavior::kRemoved:
        if (!part.is_match) out->push_back(part.range);
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (part.is_match && joins_last && !parts[i - 1].is_match) {
          out->back().end = part.range.end;
        } else {
          out->push_back(part.range);
        }
        break;
      case SplitBehavior::kMergedWithNext:
        if (!part.is_match && joins_last && parts[i - 1].is_match) {
          out->back().end = part.range.end;
        } else {
          out->push_back(part.range);
        }
        break;
      case SplitBehavior::kContiguous:
        if (joins_last && parts[i - 1].is_match == part.is_match) {
          out->back().end = part.range.end;
        } else {
          out->push_back(part.range);
        }
        break;
    }
  }
}

void split_by_regex(Pieces* pieces, const Regex& regex, SplitBehavior behavior, bool invert, Scratch& scratch) {
  std::vector<TextRange> cut;
  cut.reserve(pieces->ranges.size() + pieces->text.size() / 4);
  for (const TextRange& range : pieces->ranges) {
    regex.find_all(pieces->view(range), scratch.regex, &scratch.matches);
    for (TextRange& match : scratch.matches) match = {match.begin + range.begin, match.end + range.begin};
    split_at(range, scratch.matches, behavior, invert, &cut);
  }
  pieces->ranges = std::move(cut);
}

void split_by_character(Pieces* pieces, bool (*is_match)(uint32_t), SplitBehavior behavior, Scratch& scratch) {
  std::vector<TextRange> cut;
  for (const TextRange& range : pieces->ranges) {
    scratch.matches.clear();
    for (size_t at = range.begin; at < range.end;) {
      const size_t begin = at;
      if (is_match(next_code_point(pieces->text, &at))) scratch.matches.push_back({begin, at});
    }
    split_at(range, scratch.matches, behavior, false, &cut);
  }
  pieces->ranges = std::move(cut);
}

}  // namespace invar
