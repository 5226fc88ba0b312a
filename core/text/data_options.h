// From a DataConfig to how its files are read and cut. Configs are resolved: every default is filled in.
// Thread rule: pure functions over their arguments and files.
#pragma once

#include "core/base/file.h"
#include "core/base/status.h"
#include "core/text/sequences.h"
#include "core/text/tokenized_text.h"
#include "invar/v1/data.pb.h"

namespace invar {

// Reads the chat template's file where one is named. Weights belong to data.paths.
Result<TokenizeOptions> tokenize_options_of(const v1::DataConfig& config, FileSystem& files);

// Nothing is held out. An automatic packing keeps the documents of `text` whole when records are among them.
SequenceOptions sequence_options_of(const v1::DataConfig& config, const TokenizedText& text);

// Data preparation in a line for warnings: truncated, dropped and masked documents; empty when there are none.
std::string packing_warning(const Sequences& sequences, const TokenBuffer& tokens,
                            const std::vector<std::string>& paths);

}  // namespace invar
