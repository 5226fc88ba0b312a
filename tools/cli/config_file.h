// Config files: YAML becomes JSON here, everything else is read by the library.
#pragma once

#include <string>

#include "tools/cli/client.h"

namespace cli {

// By its ending: .yaml .yml, .json, .textproto .txtpb .pbtxt; "-" is YAML from standard input.
Message read_config(invar_runtime* runtime, const std::string& type, const std::string& path);
std::string yaml_to_json(const std::string& text, const std::string& path);
// A whole file; Failure(kIo) with the system's reason.
std::string read_file(const std::string& path);
// Beside the target and renamed.
void write_file(const std::string& path, const std::string& content);

}  // namespace cli
