// The language of chat templates: what is refused, and that nothing a template does ends the process.
#include <gtest/gtest.h>

#include "core/text/template/chat_template.h"

namespace invar {
namespace {

using chat::Value;

// The text, or "reason: message".
std::string render(std::string_view source, chat::Dict variables = {}) {
  const auto chat = ChatTemplate::parse(source, {});
  if (!chat.ok()) return chat.status().reason() + ": " + chat.status().message();
  ChatOptions options;
  options.variables = std::move(variables);
  const auto rendered = chat.value()->render(Value::list({}), options);
  return rendered.ok() ? rendered.value().text : rendered.status().reason() + ": " + rendered.status().message();
}

TEST(ChatTemplate, RefusesByNameWithTheLine) {
  EXPECT_EQ(
      render("a\n{% include 'x' %}"),
      "template.unsupported: line 2: tag \"include\" is not supported; supported: if, for, set, macro, call, filter, "
      "generation, raw, break, continue");
  EXPECT_TRUE(
      render("{{ 1 | shuffle }}").starts_with("template.unsupported: chat template: line 1: filter \"shuffle\""));
  EXPECT_TRUE(render("{{ 1 is weird }}").starts_with("template.unsupported: chat template: line 1: test \"weird\""));
  EXPECT_EQ(render("\n{{ (1 }}"), "template.syntax: line 2: a tag {{ is not closed");
  EXPECT_EQ(render("{% if x %}"), "template.syntax: line 1: the template ends without {% endif %}");
  EXPECT_EQ(render("{{ 'x }}"), "template.syntax: line 1: a string is not closed");
  EXPECT_EQ(render("{% break %}"), "template.syntax: line 1: {% break %} outside of a for");
  EXPECT_EQ(render("{{ $ }}"), "template.syntax: line 1: character \"$\" has no place in a tag");
  EXPECT_EQ(render("{{ 99999999999999999999 }}"), "template.syntax: line 1: number 99999999999999999999 is too large");
}

TEST(ChatTemplate, ErrorsNameLineAndReason) {
  EXPECT_EQ(render("\n\n{{ x.y.z }}"),
            "template.error: chat template: line 3: nothing is there to take \"y\" of: \"x\"");
  EXPECT_EQ(render("{{ raise_exception('no system turn') }}"),
            "template.raised: chat template: line 1: no system turn");
  EXPECT_EQ(render("{{ 1 // 0 }}"), "template.error: chat template: line 1: division by zero");
  EXPECT_EQ(render("{{ 'a' + 1 }}"), "template.error: chat template: line 1: a str + a int is not possible");
  EXPECT_EQ(render("{{ 9223372036854775807 + 1 }}"), "template.error: chat template: line 1: a number is too large");
  EXPECT_EQ(render("{% set x = 1 %}{% set x.y = 2 %}"),
            "template.error: chat template: line 1: \"x\" is a int; only fields of a namespace can be set");
}

TEST(ChatTemplate, BoundsWorkOutputAndNesting) {
  EXPECT_TRUE(render("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}")
                  .starts_with("template.limit: "));
  EXPECT_TRUE(render("{{ range(1000000000) }}").starts_with("template.limit: "));
  EXPECT_TRUE(render("{{ 'abc' * 1000000000 }}").starts_with("template.error: "));
  EXPECT_TRUE(render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").starts_with("template.limit: "));
  EXPECT_TRUE(render(std::string("{{ ") + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}")
                  .starts_with("template.syntax: "));
  EXPECT_TRUE(render(std::string("{{ ") + std::string(5000, '-') + "1 }}").starts_with("template.syntax: "));
  std::string nested;
  for (int i = 0; i < 1000; ++i) nested += "{% if 1 %}";
  EXPECT_TRUE(render(nested).starts_with("template.syntax: "));
}

TEST(ChatTemplate, TakesWhiteSpaceAroundTags) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a {%- if true -%} b {%- endif -%} c"), "abc");
  EXPECT_EQ(render("a\n  {# gone #}\nb"), "a\nb");
  EXPECT_EQ(render("{{ 1 }}\n{{ 2 }}"), "1\n2");
}

TEST(ChatTemplate, TellsTheTimeItWasGiven) {
  const auto chat = ChatTemplate::parse("{{ strftime_now('%d %b %Y') }}", {});
  ASSERT_TRUE(chat.ok());
  ChatOptions options;
  options.unix_time = 1700000000;
  EXPECT_EQ(chat.value()->render(Value::list({}), options).value().text, "14 Nov 2023");
}

TEST(ChatTemplate, JsonKeepsItsOrderAndRefusesWhatIsNone) {
  const auto value = chat::value_of_json(R"({"b": [1, 2.5, null, true], "a": {"x": "é"}})");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(chat::json_of(value.value(), -1), R"({"b": [1, 2.5, null, true], "a": {"x": "é"}})");
  EXPECT_EQ(chat::value_of_json("{").status().reason(), "template.bad_json");
  EXPECT_EQ(chat::value_of_json(std::string(100000, '[')).status().reason(), "template.bad_json");
}

}  // namespace
}  // namespace invar
