// Runs a parsed chat template: text out, and the stretches that {% generation %} marks.
//
// Work, output and nesting are bounded, so that a hostile template ends with "template.limit".
// Thread rule: one thread at a time; the parsed block is only read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/text/template/syntax.h"
#include "core/text/template/value.h"

namespace invar::chat {

struct Rendered {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generated;  // bytes [begin, end) of {% generation %}
};

// globals: the variables and functions that the template sees.
Result<Rendered> run_template(const Block& block, Dict globals);

}  // namespace invar::chat
