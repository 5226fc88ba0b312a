// Vocabularies of real models give the ids that the tokenizers library gave, and the chat templates that came with them
// parse. INVAR_TOKENIZERS names the folder that holds the packages, `npm install` of which
// tests/cases/tokenizers/real-*.json tells; without it nothing is compared.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/text/chat.h"
#include "core/text/template/value.h"
#include "core/text/tokenizer.h"

namespace invar {
namespace {

constexpr const char* kFolder = "tests/cases/tokenizers";

class RealTokenizers : public testing::TestWithParam<const char*> {};

chat::Value read_json(const std::string& path) {
  auto text = read_text(posix_files(), path, int64_t{64} << 20);
  EXPECT_TRUE(text.ok()) << text.status().message();
  auto value = chat::value_of_json(text.ok() ? text.value() : "{}");
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? value.value() : chat::Value::dict({});
}

std::vector<int32_t> ids_of(const chat::Value& list) {
  std::vector<int32_t> ids;
  for (const auto& id : list.items()) ids.push_back(static_cast<int32_t>(id.integer()));
  return ids;
}

TEST_P(RealTokenizers, EncodeAsTheTokenizersLibrary) {
  const char* packages = std::getenv("INVAR_TOKENIZERS");
  if (packages == nullptr) GTEST_SKIP() << "INVAR_TOKENIZERS is not set";
  const chat::Value table = read_json(join_path(kFolder, GetParam()));
  // "npm @scope/name version"
  const std::string package = table.find("package").string();
  const size_t slash = package.find('/');
  const std::string name = package.substr(slash + 1, package.rfind(' ') - slash - 1);
  const std::string file = join_path(join_path(packages, name), table.find("file").string());
  if (!posix_files().exists(file)) GTEST_SKIP() << file << " is not there";
  const auto loaded = load_tokenizer(posix_files(), file);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const chat::Value strings = read_json(join_path(kFolder, table.find("strings").string()));
  for (const auto& one : table.find("cases").items()) {
    const std::string& text = strings.items()[static_cast<size_t>(one.find("i").integer())].string();
    EXPECT_EQ(loaded.value()->encode(text, {.add_special = true, .parse_special = true}), ids_of(one.find("ids")))
        << text;
    EXPECT_EQ(loaded.value()->encode(text, {.parse_special = true}), ids_of(one.find("ids_no_special"))) << text;
  }
  EXPECT_TRUE(chat_template_of(*loaded.value()).ok());
}

INSTANTIATE_TEST_SUITE_P(All, RealTokenizers,
                         testing::Values("real-llama2.json", "real-llama3_1.json", "real-qwen3.json"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace invar
