// Feeds bytes as a chat template, and renders what is accepted over a conversation with a system turn and tools.
// What must hold for any bytes: no crash, no endless run, an error with a reason.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/text/template/chat_template.h"

namespace {

using invar::chat::Value;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s does not hold\n", what);
  std::abort();
}

Value turn(const char* role, const char* content) { return Value::dict({{"role", role}, {"content", content}}); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto chat = invar::ChatTemplate::parse(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!chat.ok()) {
    require(!chat.status().reason().empty() && !chat.status().message().empty(), "an error says why");
    return 0;
  }
  invar::ChatOptions options;
  options.add_generation_prompt = true;
  options.tools = Value::list({Value::dict({{"name", "clock"}, {"description", "tells the time"}})});
  const auto rendered = chat.value()->render(
      Value::list({turn("system", "Be brief."), turn("user", "What is it?"), turn("assistant", "Noon.")}), options);
  require(rendered.ok() || !rendered.status().reason().empty(), "an error says why");
  return 0;
}
