// ByteLevel: texts as bytes, each byte written as one printable character (Radford et al. 2019, "Language models are
// unsupervised multitask learners"): itself where it is printable in Latin-1, else the next free one from U+0100 on.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <string>

#include "core/text/pipeline/stages.h"

namespace invar {

// The character for each byte, in UTF-8.
std::array<std::string, 256> byte_characters();
// The byte that a character stands for, -1 for none.
int byte_of_character(uint32_t code_point);
// The bytes that a token of such characters stands for; false, and `bytes` as it was, when it holds another one.
bool bytes_of_token(std::string_view token, std::string* bytes);

// map_bytes: pieces become the characters; else they stay bytes, for a model that reads bytes.
Result<std::unique_ptr<PreTokenizer>> make_byte_level_pre_tokenizer(const Json& json, bool map_bytes);
// Cuts words and leaves bytes as they are.
std::unique_ptr<PreTokenizer> byte_level_words();
Result<std::unique_ptr<Decoder>> make_byte_level_decoder(const Json& json);

}  // namespace invar
