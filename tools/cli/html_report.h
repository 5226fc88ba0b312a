// The report of a conversion as one HTML page that needs nothing else: numbers, rules, pictures of the codes, tensors.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace cli {

// `report` is a ConvertReport as JSON.
std::string html_report(const nlohmann::json& report);

}  // namespace cli
