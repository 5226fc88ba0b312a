#include "tools/cli/command.h"

#include <cmath>
#include <cstdio>

#include "tools/cli/config_file.h"
#include "tools/cli/interrupt.h"

namespace cli {

namespace {

void start_library(Context& context) {
  if (invar_abi_version() != INVAR_ABI_VERSION) {
    throw Failure(kInternal, std::string("libinvar has another ABI: ") + invar_build_info());
  }
  invar_runtime_options options = INVAR_RUNTIME_OPTIONS_INIT;
  if (!context.quiet) {
    options.log_level = INVAR_LOG_WARNING;
    options.log = [](void*, int32_t, const char* message, size_t) { std::fprintf(stderr, "invar: %s\n", message); };
  }
  invar_runtime* runtime = nullptr;
  check(invar_runtime_create(&options, &runtime));
  context.runtime.reset(runtime);
  invar_cancel* cancel = nullptr;
  check(invar_cancel_create(runtime, &cancel));
  context.cancel.reset(cancel);
  cancel_on_interrupt(cancel);
}

// "optimizer.lr=3e-4", and not "./a=b".
bool is_override(const std::string& text) {
  const size_t equals = text.find('=');
  return equals != std::string::npos && equals > 0 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.+") == equals && text[0] != '.';
}

}  // namespace

Command::Command(CLI::App& parent, Context& context, const std::string& name, const std::string& description,
                 std::string type, const std::string& examples)
    : context_(context), app_(parent.add_subcommand(name, description)), type_(std::move(type)) {
  app_->add_flag("--json", context.json, "one JSON object on standard output");
  app_->add_flag("--quiet", context.quiet, "no progress on standard error");
  if (!type_.empty()) {
    app_->add_option("--config", config_path_, "YAML, JSON or text proto file of a " + type_ + " config");
    app_->allow_extras();
  }
  app_->footer(
      (type_.empty() ? "" : "Further arguments key=value set any field: invar config explain " + type_ + "\n\n") +
      std::string("Examples:\n") + examples);
}

CLI::Option* Command::value(const std::string& flag, const std::string& key, const std::string& help) {
  return app_->add_option_function<std::string>(
      flag,
      [this, key, positional = flag[0] != '-'](const std::string& given) {
        // With --config, key=value may stand where a path would.
        assignments_.push_back(positional && is_override(given) ? given : key + "=" + given);
      },
      help);
}

CLI::Option* Command::flag(const std::string& name, const std::string& key, const std::string& setting,
                           const std::string& help) {
  return app_->add_flag_callback(
      name, [this, key, setting] { assignments_.push_back(key + "=" + setting); }, help);
}

CLI::Option* Command::list(const std::string& flag, const std::string& key, const std::string& help) {
  return app_
      ->add_option_function<std::vector<std::string>>(
          flag,
          [this, key](const std::vector<std::string>& given) {
            lists_.push_back([key, given](Message* message) { message->set_list(key, given); });
          },
          help)
      ->allow_extra_args(false);
}

CLI::Option* Command::entries(const std::string& flag, const std::string& key, const std::string& help) {
  return app_
      ->add_option_function<std::vector<std::string>>(
          flag,
          [this, key](const std::vector<std::string>& given) {
            for (const std::string& entry : given) assignments_.push_back(key + "." + entry);
          },
          help)
      ->allow_extra_args(false);
}

Message Command::build() const {
  Message config(context_.runtime.get(), type_);
  if (!config_path_.empty()) config = read_config(context_.runtime.get(), type_, config_path_);
  for (const std::string& assignment : assignments_) config.set(assignment);
  for (const auto& list : lists_) list(&config);
  for (const std::string& extra : app_->remaining()) {
    if (extra.empty() || extra[0] == '-' || extra.find('=') == std::string::npos) {
      throw Failure(kUsage, "\"" + extra + "\": unknown argument; see invar " + app_->get_name() + " --help");
    }
    config.set(extra);
  }
  return config;
}

void Command::run(std::function<int(Message config)> body) {
  app_->final_callback([this, body = std::move(body)] {
    start_library(context_);
    throw CLI::RuntimeError(body(build()));
  });
}

Message run_work(Context& context, WorkFunction work, const Message& config, const std::string& report_type) {
  config.check();
  ProgressLine line(context.quiet);
  const invar_progress_callback callback = line.callback();
  invar_bytes* report = nullptr;
  invar_status* status =
      work(context.runtime.get(), config.data(), config.size(), context.cancel.get(), &callback, &report);
  line.finish();
  check(status);
  return Message(context.runtime.get(), report_type, take(report));
}

void show(const Context& context, const Message& report, const std::function<void(const nlohmann::json&)>& print) {
  if (context.json) {
    std::printf("%s\n", report.json(true).c_str());
  } else {
    print(nlohmann::json::parse(report.json(false)));
  }
}

double number(const nlohmann::json& object, const char* key, double absent) {
  const auto found = object.find(key);
  if (found == object.end()) return absent;
  if (found->is_number()) return found->get<double>();
  const std::string word = found->is_string() ? found->get<std::string>() : "";
  return word == "Infinity" ? HUGE_VAL : word == "-Infinity" ? -HUGE_VAL : std::nan("");
}

long long integer(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<long long>() : 0;
}

std::string text(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

void print_warnings(const nlohmann::json& report) {
  const auto found = report.find("warnings");
  if (found == report.end()) return;
  for (const auto& warning : *found) std::printf("warning: %s\n", warning.get<std::string>().c_str());
}

}  // namespace cli
