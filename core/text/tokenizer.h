// Text to token ids and back.
//
//   INVAR_ASSIGN(auto tokenizer, load_tokenizer(files, folder));   // or ByteTokenizer
//   std::vector<int32_t> ids = tokenizer->encode("In the beginning");
//
// Invariant: decode(encode(text)) == text for valid UTF-8, without special tokens. encode() never produces a special
// token unless `parse_special` asks for it: training text cannot smuggle one in.
// Thread rule: const after construction; use from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/base/status.h"

namespace invar {

// A file that a tokenizer is saved as.
struct TokenizerFile {
  std::string name, text;
};

struct EncodeOptions {
  bool add_special = false;    // what the tokenizer puts around a prompt (a begin token), if anything
  bool parse_special = false;  // special tokens written in the text become their ids
  bool truncate = false;       // as the tokenizer's file says, if it does
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids are below this.
  virtual int32_t vocab_size() const = 0;
  // -1 where there is none.
  virtual int32_t bos_id() const = 0;
  virtual int32_t eos_id() const = 0;
  virtual int32_t pad_id() const = 0;

  virtual void encode_to(std::string_view text, const EncodeOptions& options, std::vector<int32_t>* ids) const = 0;
  // Special tokens are left out when `skip_special`, else written by name. Bytes may be an unfinished UTF-8 sequence.
  // "tokenizer.id_out_of_range" names the position.
  virtual Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const = 0;
  // tokenizer.json, tokenizer_config.json and what else belongs to them, as Hugging Face packages load them: byte for
  // byte what was read, where it was read from files.
  virtual std::vector<TokenizerFile> files() const = 0;
  // What stands before a text that is trained, such as a begin token; empty where the tokenizer's file names nothing.
  virtual std::vector<int32_t> text_prefix() const { return {}; }
  // The id of a token by its name, -1 where there is none, and back; a name is how the token's file writes it.
  virtual int32_t id_of(std::string_view token) const = 0;
  virtual std::string token_of(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const {
    std::vector<int32_t> ids;
    encode_to(text, options, &ids);
    return ids;
  }
};

// Writes tokenizer.files() into an existing folder.
Status save_tokenizer(const Tokenizer& tokenizer, FileSystem& files, const std::string& folder);

// The tokenizer of a folder (its tokenizer.json, else its tokenizer.model), of a tokenizer.json, or of a SentencePiece
// model, whose name ends in .model.
// "tokenizer.unsupported" names what in the file is not supported.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(FileSystem& files, const std::string& path);

}  // namespace invar
