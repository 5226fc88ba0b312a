// Every conversation of tests/cases/chat_templates gives the text that transformers made of it, and fails where it
// failed there. INVAR_CHAT_CASES names a further table, made by tools/bench/peers/chat_templates.py of real models.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/base/file.h"
#include "core/text/template/chat_template.h"

namespace invar {
namespace {

using chat::Value;

constexpr const char* kFolder = "tests/cases/chat_templates";

std::string read(const std::string& path) {
  auto text = read_text(posix_files(), path, int64_t{16} << 20);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? text.value() : std::string();
}

void check_case(const ChatTemplate& chat, const Value& talks, const Value& one) {
  ChatOptions options;
  options.add_generation_prompt = one.find("add_generation_prompt").truthy();
  if (!one.find("tools").is_none()) options.tools = one.find("tools");
  options.variables = one.find("variables").entries();
  const auto rendered = chat.render(talks.find(one.find("talk").string()), options);
  const Value error = one.find("error");
  if (error.is_string()) {
    ASSERT_FALSE(rendered.ok()) << rendered.value().text;
    const std::string prefix = "TemplateError: ";
    if (!error.string().starts_with(prefix)) return;
    EXPECT_EQ(rendered.status().reason(), "template.raised");
    EXPECT_NE(rendered.status().message().find(error.string().substr(prefix.size())), std::string::npos)
        << rendered.status().message();
    return;
  }
  ASSERT_TRUE(rendered.ok()) << rendered.status().message();
  EXPECT_EQ(rendered.value().text, one.find("expected").string());
  const Value generated = one.find("generated");
  if (generated.is_undefined()) return;
  ASSERT_EQ(rendered.value().generated.size(), generated.items().size());
  for (size_t i = 0; i < generated.items().size(); ++i) {
    const auto [begin, end] = rendered.value().generated[i];
    EXPECT_EQ(rendered.value().text.substr(begin, end - begin), generated.items()[i].string());
  }
}

void check_table(const std::string& path) {
  const auto table = chat::value_of_json(read(path));
  ASSERT_TRUE(table.ok()) << table.status().message();
  const Value talks = table.value().find("talks");
  for (const Value& row : table.value().find("templates").items()) {
    const std::string name = row.find("name").string();
    const Value inside = row.find("template");
    const std::string source = inside.is_string() ? inside.string() : read(join_path(kFolder, name + ".jinja"));
    const auto chat = ChatTemplate::parse(source, row.find("tokens").entries());
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.status().message();
    for (const Value& one : row.find("cases").items()) {
      SCOPED_TRACE(name + ", " + one.find("talk").string());
      check_case(*chat.value(), talks, one);
    }
  }
}

TEST(ChatTemplateCases, GiveTheTextOfTransformers) { check_table(join_path(kFolder, "cases.json")); }

TEST(ChatTemplateCases, OfFurtherModelsWhereATableIsGiven) {
  const char* path = std::getenv("INVAR_CHAT_CASES");
  if (path == nullptr) GTEST_SKIP() << "INVAR_CHAT_CASES is not set";
  check_table(path);
}

}  // namespace
}  // namespace invar
