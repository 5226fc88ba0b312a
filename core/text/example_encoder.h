// Examples to token ids, each with a mark whether it is trained.
//
//   ExampleEncoder encoder(tokenizer, chat_template, LossOn::kAuto);
//   INVAR_ASSIGN(const EncodedExample encoded, encoder.encode(example));
//
// Of a conversation, what the model writes is trained: the stretches that the template marks with {% generation %},
// else those found by rendering the conversation up to each reply. Ids are those of the whole text, so that they equal
// what other tools make of it.
// Thread rule: const after construction; use from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/text/example.h"
#include "core/text/template/chat_template.h"
#include "core/text/tokenizer.h"

namespace invar {

enum class LossOn {
  kAuto,        // all tokens of texts; of the others what the model writes
  kAll,         // every token
  kCompletion,  // what the model writes; a plain text is refused
};

struct EncodedExample {
  std::vector<int32_t> ids;
  std::vector<bool> trained;  // of each id
};

// A stretch of a text, and whether it is trained.
struct TrainedStretch {
  std::string_view text;
  bool trained = false;
};

class ExampleEncoder {
 public:
  // chat: may be null; then conversations are refused ("template.none").
  ExampleEncoder(const Tokenizer& tokenizer, std::shared_ptr<const ChatTemplate> chat, LossOn loss)
      : tokenizer_(tokenizer), chat_(std::move(chat)), loss_(loss) {}

  Result<EncodedExample> encode(const Example& example) const;

 private:
  Result<EncodedExample> encode_messages(const Example& example) const;
  Result<EncodedExample> encode_text(const Example& example) const;
  Result<EncodedExample> encode_pair(const Example& example) const;
  void close(EncodedExample* encoded) const;

  const Tokenizer& tokenizer_;
  std::shared_ptr<const ChatTemplate> chat_;
  LossOn loss_;
};

// The ids of the stretches joined, each marked as the stretch that its first byte lies in.
EncodedExample encode_stretches(const Tokenizer& tokenizer, const std::vector<TrainedStretch>& stretches,
                                bool parse_special);
// Where the replies stand in `rendered` (bytes [begin, end)), by rendering the conversation up to each.
// "template.no_span" names the reply that is not found.
Result<std::vector<std::pair<size_t, size_t>>> reply_spans(const ChatTemplate& chat, const chat::Value& messages,
                                                           const ChatOptions& options, std::string_view rendered,
                                                           size_t context_messages);

}  // namespace invar
