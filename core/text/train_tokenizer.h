// Learns a byte-level vocabulary from files.
// Thread rule: pure functions over their arguments and files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/status.h"
#include "core/text/documents.h"
#include "core/text/pipeline/bpe_trainer.h"

namespace invar {

struct TrainedTokenizer {
  std::string tokenizer_json, tokenizer_config_json;
  int64_t vocab_size = 0, merges = 0, documents = 0, bytes = 0;
};

// A text file is read line by line, as the Hugging Face trainer reads files; a JSONL document is one text.
// Progress counts bytes read first, then tokens made.
Result<TrainedTokenizer> train_tokenizer(FileSystem& files, const std::vector<std::string>& paths,
                                         const DocumentOptions& documents, const BpeTrainerOptions& options,
                                         const BpeTrainer::Hooks& hooks);

// Writes tokenizer.json as `path`, or into the folder `path` with tokenizer_config.json when it does not end in .json.
Status save_trained_tokenizer(const TrainedTokenizer& trained, FileSystem& files, const std::string& path);

}  // namespace invar
