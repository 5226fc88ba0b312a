// Files of token ids: bare integers (nanoGPT's .bin: 16 bits; .u16; .u32) and llm.c's .bin with its header of 256
// 32-bit integers, whose first tells 16-bit (20240520) or 32-bit (20240801) ids and whose third counts them. Thread
// rule: pure functions over their arguments and files.
#pragma once

#include <string>

#include "core/base/file.h"
#include "core/base/status.h"
#include "core/text/token_buffer.h"

namespace invar {

// By its name: .bin, .u16, .u32.
bool is_token_file(const std::string& path);

// "text.token_file_size" when the size does not fit, "text.vocabulary_mismatch" for an id outside of the vocabulary,
// "text.unsupported_format" for the .bin of a Megatron pair (its .idx lies beside it).
Status append_token_file(FileSystem& files, const std::string& path, TokenBuffer* tokens);

}  // namespace invar
