#include "core/text/example_encoder.h"

#include <algorithm>

namespace invar {
namespace {

using chat::List;
using chat::Value;
using Spans = std::vector<std::pair<size_t, size_t>>;

// Marks by byte offsets: for ids whose text is the stretches' text again.
void mark_by_offsets(const Tokenizer& tokenizer, const std::vector<TrainedStretch>& stretches,
                     EncodedExample* encoded) {
  encoded->trained.assign(encoded->ids.size(), false);
  const auto bytes_of = [&](size_t count) {
    const auto text = tokenizer.decode(std::span(encoded->ids).first(count), false);
    return text.ok() ? text.value().size() : size_t{0};
  };
  size_t place = 0, first = 0;
  for (const TrainedStretch& stretch : stretches) {
    place += stretch.text.size();
    // The first id that begins at `place` or later.
    size_t low = first, high = encoded->ids.size();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (bytes_of(middle) < place) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (stretch.trained)
      std::fill(encoded->trained.begin() + static_cast<ptrdiff_t>(first),
                encoded->trained.begin() + static_cast<ptrdiff_t>(low), true);
    first = low;
  }
}

List first_messages(const Value& messages, size_t count) {
  return List(messages.items().begin(), messages.items().begin() + static_cast<ptrdiff_t>(count));
}

}  // namespace

EncodedExample encode_stretches(const Tokenizer& tokenizer, const std::vector<TrainedStretch>& stretches,
                                bool parse_special) {
  EncodedExample encoded, apart;
  std::string whole;
  for (const TrainedStretch& stretch : stretches) {
    whole += stretch.text;
    tokenizer.encode_to(stretch.text, {.parse_special = parse_special}, &apart.ids);
    apart.trained.resize(apart.ids.size(), stretch.trained);
  }
  tokenizer.encode_to(whole, {.parse_special = parse_special}, &encoded.ids);
  if (encoded.ids == apart.ids) return apart;
  const auto again = tokenizer.decode(encoded.ids, false);
  if (!again.ok() || again.value() != whole) return apart;  // offsets mean nothing: ids of the stretches alone
  mark_by_offsets(tokenizer, stretches, &encoded);
  return encoded;
}

Result<Spans> reply_spans(const ChatTemplate& chat, const Value& messages, const ChatOptions& options,
                          std::string_view rendered, size_t context_messages) {
  Spans spans;
  size_t from = 0;
  for (size_t i = 0; i < messages.items().size(); ++i) {
    const Value& message = messages.items()[i];
    if (message.find("role").text() != "assistant" || i < context_messages) continue;
    ChatOptions before = options, after = options;
    before.add_generation_prompt = true;
    after.add_generation_prompt = false;
    const auto head = i > 0 ? chat.render(Value::list(first_messages(messages, i)), before)
                            : Result<chat::Rendered>(Error(Code::kNotFound, "template.empty", "no message"));
    const auto tail = chat.render(Value::list(first_messages(messages, i + 1)), after);
    size_t begin = std::string_view::npos, end = std::string_view::npos;
    if (head.ok() && rendered.starts_with(head.value().text) && head.value().text.size() >= from) {
      begin = head.value().text.size();
    }
    if (tail.ok() && rendered.starts_with(tail.value().text)) end = tail.value().text.size();
    // Templates that write earlier turns differently: the reply's own words, to the next turn.
    if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) {
      const Value content = message.find("content");
      const std::string words = content.is_string() ? content.string() : std::string();
      const size_t first = words.find_first_not_of(" \t\r\n"), last = words.find_last_not_of(" \t\r\n");
      const size_t at = first == std::string::npos ? std::string_view::npos
                                                   : rendered.find(words.substr(first, last + 1 - first), from);
      if (at == std::string_view::npos) {
        return Error(Code::kInvalidArgument, "template.no_span",
                     cat("the chat template does not show where message ", i,
                         " stands; mark what the model writes with {% generation %} in the template, or train all "
                         "tokens"));
      }
      begin = at;
      end = at + (last + 1 - first);
      // What closes the turn belongs to it: up to the end of a special mark right behind.
      if (rendered.substr(end).starts_with("<")) {
        const size_t close = rendered.find('>', end);
        if (close != std::string_view::npos) end = close + 1;
      }
    }
    if (begin < from) begin = from;
    if (end > begin) spans.emplace_back(begin, end);
    from = std::max(from, end);
  }
  return spans;
}

void ExampleEncoder::close(EncodedExample* encoded) const {
  const int32_t end = tokenizer_.eos_id();
  if (end < 0 || (!encoded->ids.empty() && encoded->ids.back() == end)) return;
  encoded->ids.push_back(end);
  encoded->trained.push_back(true);
}

Result<EncodedExample> ExampleEncoder::encode(const Example& example) const {
  switch (example.kind) {
    case ExampleKind::kText: return encode_text(example);
    case ExampleKind::kTokens: {
      EncodedExample encoded{example.ids, example.trained};
      if (loss_ == LossOn::kAll) encoded.trained.assign(encoded.ids.size(), true);
      return encoded;
    }
    case ExampleKind::kPromptCompletion:
      // A record of instruction and output carries both forms.
      if (example.messages.is_list() && chat_ != nullptr) return encode_messages(example);
      return encode_pair(example);
    case ExampleKind::kMessages: return encode_messages(example);
  }
  return EncodedExample();
}

Result<EncodedExample> ExampleEncoder::encode_text(const Example& example) const {
  if (loss_ == LossOn::kCompletion) {
    return Error(Code::kInvalidArgument, "text.no_completion",
                 "a plain text has no part that the model writes; train all tokens or give prompt and completion");
  }
  EncodedExample encoded;
  encoded.ids = tokenizer_.text_prefix();
  tokenizer_.encode_to(example.text, {}, &encoded.ids);
  encoded.trained.assign(encoded.ids.size(), true);
  if (!example.text.empty()) close(&encoded);
  return encoded;
}

Result<EncodedExample> ExampleEncoder::encode_pair(const Example& example) const {
  const EncodedExample body =
      encode_stretches(tokenizer_, {{example.prompt, loss_ == LossOn::kAll}, {example.completion, true}}, false);
  EncodedExample encoded;
  encoded.ids = tokenizer_.text_prefix();
  encoded.trained.assign(encoded.ids.size(), loss_ == LossOn::kAll);
  encoded.ids.insert(encoded.ids.end(), body.ids.begin(), body.ids.end());
  encoded.trained.insert(encoded.trained.end(), body.trained.begin(), body.trained.end());
  close(&encoded);
  return encoded;
}

Result<EncodedExample> ExampleEncoder::encode_messages(const Example& example) const {
  if (chat_ == nullptr) {
    return Error(Code::kFailedPrecondition, "template.none",
                 "a conversation, but the tokenizer came without a chat template; set data.chat_template");
  }
  ChatOptions options;
  options.tools = example.tools;
  options.variables = example.variables;
  INVAR_ASSIGN(const chat::Rendered rendered, chat_->render(example.messages, options));
  Spans spans = rendered.generated;
  if (loss_ == LossOn::kAll) {
    spans = {{0, rendered.text.size()}};
  } else if (!chat_->marks_generation() || example.context_messages > 0) {
    INVAR_ASSIGN(spans, reply_spans(*chat_, example.messages, options, rendered.text, example.context_messages));
  }
  std::vector<TrainedStretch> stretches;
  size_t done = 0;
  const std::string_view text = rendered.text;
  for (const auto& [begin, end] : spans) {
    if (begin > done) stretches.push_back({text.substr(done, begin - done), false});
    stretches.push_back({text.substr(begin, end - begin), true});
    done = end;
  }
  if (done < text.size()) stretches.push_back({text.substr(done), false});
  return encode_stretches(tokenizer_, stretches, true);
}

}  // namespace invar
