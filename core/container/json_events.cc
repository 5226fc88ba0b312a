#include "core/container/json_events.h"

namespace invar {

// The shape nlohmann's parser expects.
struct JsonEventsAdapter {
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  JsonEvents& events;

  bool null() { return events.on_other("null"); }
  bool boolean(bool value) { return events.on_other(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) { return events.on_other(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) { return events.on_unsigned(value); }
  bool number_float(number_float_t, const string_t& text) { return events.on_other(text.substr(0, 40)); }
  bool string(string_t& value) { return events.on_string(value); }
  bool binary(binary_t&) { return false; }
  bool key(string_t& value) { return events.on_key(value); }
  bool start_object(size_t) { return enter() && events.on_object(); }
  bool end_object() { return --events.level_, events.on_object_end(); }
  bool start_array(size_t) { return enter() && events.on_array(); }
  bool end_array() { return --events.level_, events.on_array_end(); }

  bool enter() {
    if (++events.level_ <= events.max_depth_) return true;
    return events.fail(Error(Code::kDataLoss, events.bad_reason_,
                             cat(events.label_, ": JSON is nested deeper than ", events.max_depth_, " levels")));
  }

  template <typename Exception>
  bool parse_error(size_t position, const std::string&, const Exception&) {
    return events.fail(Error(Code::kDataLoss, events.bad_reason_,
                             cat(events.label_, ": text is not valid JSON in UTF-8 near byte ", position)));
  }
};

Status JsonEvents::run(std::string_view label, std::string_view text, std::string_view bad_reason, int depth) {
  label_ = label;
  bad_reason_ = bad_reason;
  max_depth_ = depth;
  level_ = 0;
  status_ = {};
  // The parser would skip a byte order mark, and takes any value for a document.
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') {
    return Error(Code::kDataLoss, bad_reason_, cat(label_, ": text does not start with \"{\""));
  }
  JsonEventsAdapter adapter{*this};
  const bool done = nlohmann::json::sax_parse(text.begin(), text.end(), &adapter);
  if (!done && status_.ok()) status_ = Error(Code::kDataLoss, bad_reason_, cat(label_, ": text is not valid JSON"));
  return status_;
}

bool JsonEvents::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
  return false;
}

}  // namespace invar
