#include "core/container/json_document.h"

#include "core/container/json_events.h"

namespace invar {
namespace {

// Any JSON; only the depth and the syntax are checked.
class AnyEvents : public JsonEvents {
 protected:
  bool on_object() override { return true; }
  bool on_object_end() override { return true; }
  bool on_array() override { return true; }
  bool on_array_end() override { return true; }
  bool on_key(std::string&) override { return true; }
  bool on_string(std::string&) override { return true; }
  bool on_unsigned(uint64_t) override { return true; }
  bool on_other(std::string_view) override { return true; }
};

}  // namespace

Result<nlohmann::ordered_json> parse_json_object(std::string_view label, std::string_view text, std::string_view reason,
                                                 int depth) {
  AnyEvents events;
  INVAR_TRY(events.run(label, text, reason, depth));
  auto object = nlohmann::ordered_json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded() || !object.is_object()) {
    return Error(Code::kDataLoss, reason, cat(label, ": text is not a JSON object"));
  }
  return object;
}

std::string json_text(const nlohmann::ordered_json& object) {
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace invar
