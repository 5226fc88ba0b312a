// Which tool most likely wrote a quantised checkpoint, from what its configs declare and how its tensors are laid out.
// A guess for reports: nothing is decided by it.
//
// Thread rule: functions without state.
#pragma once

#include <string>

#include "core/checkpoint/declared.h"

namespace invar {

struct Producer {
  std::string name;    // "NVIDIA ModelOpt"; empty when nothing tells
  std::string reason;  // "quant_method \"modelopt\""
};

// `layout` is Layout::name: one name, or several joined by "+".
Producer guess_producer(const Declared& declared, const std::string& layout);

}  // namespace invar
