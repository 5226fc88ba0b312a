// Tests ("x is defined") of chat templates.
#include "core/text/template/library.h"

namespace invar::chat {
namespace {

using Args = Arguments;
using Answer = Result<bool>;

Answer ordered(const Value& input, const Args& args, bool (*accepts)(int)) {
  INVAR_ASSIGN(const int order, input.compare(args.get(0, "other")));
  return accepts(order);
}

struct Entry {
  std::string_view name;
  Library::Test test;
};
constexpr Entry kTests[] = {
    {"boolean", [](const Value& v, const Args&) -> Answer { return v.is_bool(); }},
    {"callable", [](const Value& v, const Args&) -> Answer { return v.is_function(); }},
    {"defined", [](const Value& v, const Args&) -> Answer { return !v.is_undefined(); }},
    {"divisibleby",
     [](const Value& v, const Args& a) -> Answer {
       const int64_t by = a.get(0, "num").integer();
       if (by == 0) return template_error("test divisibleby: by zero");
       return v.integer() % by == 0;
     }},
    {"eq", [](const Value& v, const Args& a) -> Answer { return v.equals(a.get(0, "other")); }},
    {"equalto", [](const Value& v, const Args& a) -> Answer { return v.equals(a.get(0, "other")); }},
    {"even", [](const Value& v, const Args&) -> Answer { return v.integer() % 2 == 0; }},
    {"false", [](const Value& v, const Args&) -> Answer { return v.is_bool() && v.integer() == 0; }},
    {"float", [](const Value& v, const Args&) -> Answer { return v.is_float(); }},
    {"ge", [](const Value& v, const Args& a) -> Answer { return ordered(v, a, [](int o) { return o >= 0; }); }},
    {"gt", [](const Value& v, const Args& a) -> Answer { return ordered(v, a, [](int o) { return o > 0; }); }},
    {"in",
     [](const Value& v, const Args& a) -> Answer {
       INVAR_ASSIGN(const Value found, binary_operation("in", v, a.get(0, "seq")));
       return found.truthy();
     }},
    {"integer", [](const Value& v, const Args&) -> Answer { return v.is_integer(); }},
    {"iterable",
     [](const Value& v, const Args&) -> Answer {
       return v.is_list() || v.is_dict() || v.is_string() || v.is_undefined();
     }},
    {"le", [](const Value& v, const Args& a) -> Answer { return ordered(v, a, [](int o) { return o <= 0; }); }},
    {"lower",
     [](const Value& v, const Args&) -> Answer {
       return apply_filter("lower", v, {}).value().equals(Value(v.text()));
     }},
    {"lt", [](const Value& v, const Args& a) -> Answer { return ordered(v, a, [](int o) { return o < 0; }); }},
    {"mapping", [](const Value& v, const Args&) -> Answer { return v.is_dict(); }},
    {"ne", [](const Value& v, const Args& a) -> Answer { return !v.equals(a.get(0, "other")); }},
    {"none", [](const Value& v, const Args&) -> Answer { return v.is_none(); }},
    {"number", [](const Value& v, const Args&) -> Answer { return v.is_number(); }},
    {"odd", [](const Value& v, const Args&) -> Answer { return v.integer() % 2 != 0; }},
    {"sequence",
     [](const Value& v, const Args&) -> Answer {
       return v.is_list() || v.is_dict() || v.is_string() || v.is_undefined();
     }},
    {"string", [](const Value& v, const Args&) -> Answer { return v.is_string(); }},
    {"true", [](const Value& v, const Args&) -> Answer { return v.is_bool() && v.integer() != 0; }},
    {"undefined", [](const Value& v, const Args&) -> Answer { return v.is_undefined(); }},
    {"upper",
     [](const Value& v, const Args&) -> Answer {
       return apply_filter("upper", v, {}).value().equals(Value(v.text()));
     }},
};

}  // namespace

Result<bool> apply_test(std::string_view name, const Value& input, const Arguments& arguments) {
  std::string supported;
  for (const Entry& entry : kTests) {
    if (entry.name == name) return entry.test(input, arguments);
    supported += cat(supported.empty() ? "" : ", ", entry.name);
  }
  return Error(Code::kUnimplemented, "template.unsupported",
               cat("test \"", name, "\" is not supported; supported: ", supported));
}

}  // namespace invar::chat
