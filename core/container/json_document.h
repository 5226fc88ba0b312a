// A JSON object read whole, for the small texts beside a checkpoint: configs, indexes, manifests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace invar {

// Parses `text`, which must be one JSON object nested at most `depth` levels (printing it again recurses that deep).
// Key order is kept. `label` names the text in messages; `reason` is the error's, with DATA_LOSS.
Result<nlohmann::ordered_json> parse_json_object(std::string_view label, std::string_view text, std::string_view reason,
                                                 int depth = 64);

// As config files are written: two spaces, UTF-8 as it is, a line end. Text that is no UTF-8 is replaced, never thrown.
std::string json_text(const nlohmann::ordered_json& object);

}  // namespace invar
