// config init, config validate, config explain.
#include <cstdio>

#include "tools/cli/command.h"
#include "tools/cli/config_file.h"

namespace cli {

namespace {

using nlohmann::json;

// The default as YAML; text gets quotes.
std::string yaml_value(const json& field) {
  const std::string type = text(field, "type"), value = text(field, "default");
  return type == "string" ? json(value).dump() : value;
}

// One field and its documentation. `commented`: everything below is an example only.
void print_field(const json& field, int depth, bool commented) {
  const std::string indent(static_cast<size_t>(2 * depth), ' ');
  std::string about = text(field, "doc");
  const std::string unit = text(field, "unit");
  if (!unit.empty()) about += (about.empty() ? "[" : " [") + unit + "]";
  if (field.contains("values")) {
    std::string names;
    for (const auto& value : field["values"]) names += (names.empty() ? "" : ", ") + text(value, "name");
    about += (about.empty() ? "One of " : " One of ") + names + ".";
  }
  if (!about.empty()) std::printf("%s# %s\n", indent.c_str(), about.c_str());
  const std::string name = text(field, "name"), type = text(field, "type");
  const bool repeated = field.value("repeated", false);
  const char* mark = commented ? "# " : "";
  if (type == "message" && !repeated) {
    if (field["fields"].empty()) return;
    const bool optional = commented || field.value("presence", false);
    std::printf("%s%s%s:\n", indent.c_str(), optional ? "# " : "", name.c_str());
    for (const auto& child : field["fields"]) print_field(child, depth + 1, optional);
  } else if (field.contains("default")) {
    std::printf("%s%s%s: %s\n", indent.c_str(), mark, name.c_str(), yaml_value(field).c_str());
  } else {
    const char* example = repeated ? "[]" : type == "map" ? "{}" : "\"\"";
    std::printf("%s# %s: %s\n", indent.c_str(), name.c_str(), example);
  }
}

void print_yaml(invar_runtime* runtime, const std::string& type) {
  invar_bytes* bytes = nullptr;
  check_usage(invar_message_describe(runtime, type.data(), type.size(), &bytes));
  const json description = json::parse(take(bytes));
  std::printf("# %s: every field with its default. Lines that are commented out have none.\n",
              text(description, "name").c_str());
  for (const auto& field : description["fields"]) print_field(field, 0, false);
}

}  // namespace

void add_config_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands) {
  CLI::App* config = app.add_subcommand("config", "write, check and explain configs");
  config->require_subcommand(1);
  const auto add = [&](const char* name, const char* description, const char* examples) -> Command& {
    commands.push_back(std::make_unique<Command>(*config, context, name, description, "", examples));
    return *commands.back();
  };

  auto type = std::make_shared<std::string>("train"), form = std::make_shared<std::string>("yaml");
  auto& init = add("init", "a config with every field, its default and its documentation",
                   "  invar config init > run.yaml\n  invar config init convert --form json\n");
  init.app().add_option("TYPE", *type, "train (default), convert, calibrate, eval, generate, ...");
  init.app()
      .add_option("--form", *form, "yaml (default), json or text")
      ->check(CLI::IsMember({"yaml", "json", "text"}));
  init.run([&context, type, form](const Message&) {
    if (context.json) *form = "json";
    const Message full = Message(context.runtime.get(), *type).with_defaults();
    if (*form == "yaml") print_yaml(context.runtime.get(), *type);
    if (*form == "json") std::printf("%s\n", full.json(true).c_str());
    if (*form == "text") std::printf("%s", full.text().c_str());
    return kDone;
  });

  auto path = std::make_shared<std::string>(), checked_type = std::make_shared<std::string>("train");
  auto& validate = add("validate", "check a config file: names, types, ranges",
                       "  invar config validate run.yaml\n  invar config validate convert.yaml --type convert\n");
  validate.app().add_option("FILE", *path, "config file")->required();
  validate.app().add_option("--type", *checked_type, "train (default), convert, ...");
  validate.run([&context, path, checked_type](const Message&) {
    const Message given = read_config(context.runtime.get(), *checked_type, *path);
    given.check();
    if (context.json) {
      std::printf("%s\n", given.with_defaults().json(true).c_str());
    } else {
      std::printf("%s: a valid %s config\n", path->c_str(), checked_type->c_str());
    }
    return kDone;
  });

  auto field = std::make_shared<std::string>();
  auto& explain = add("explain", "type, default, range and meaning of a field",
                      "  invar config explain train.optimizer.lr\n  invar config explain convert\n");
  explain.app().add_option("FIELD", *field, "train.optimizer.lr, or a config's name")->required();
  explain.run([&context, field](const Message&) {
    invar_bytes* bytes = nullptr;
    check_usage(invar_message_explain(context.runtime.get(), field->data(), field->size(), &bytes));
    const std::string explanation = take(bytes);
    if (context.json) {
      std::printf("%s\n", json{{"field", *field}, {"text", explanation}}.dump(2).c_str());
    } else {
      std::printf("%s", explanation.c_str());
    }
    return kDone;
  });
}

}  // namespace cli
