// What all commands share: the app, the options every command takes, and the way from flags to a config message.
// Thread rule: one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/cli/client.h"
#include "tools/cli/progress_line.h"

namespace cli {

// One run of the tool. Made before the command line is parsed; the library starts when a command runs.
struct Context {
  bool json = false;
  bool quiet = false;
  Owned<invar_runtime> runtime;
  Owned<invar_cancel> cancel;
};

// Flags that become assignments on a message, in the order of the command line; files and overrides around them.
class Command {
 public:
  // Adds the subcommand `name`; `type` is the config message it fills ("" for none).
  Command(CLI::App& parent, Context& context, const std::string& name, const std::string& description, std::string type,
          const std::string& examples);

  CLI::App& app() { return *app_; }
  // --flag VALUE sets `key`; the library reads the value, units included.
  CLI::Option* value(const std::string& flag, const std::string& key, const std::string& help);
  // --flag sets `key` to `setting`.
  CLI::Option* flag(const std::string& name, const std::string& key, const std::string& setting,
                    const std::string& help);
  // --flag A --flag B makes a list.
  CLI::Option* list(const std::string& flag, const std::string& key, const std::string& help);
  // --flag KEY=VALUE adds to a map.
  CLI::Option* entries(const std::string& flag, const std::string& key, const std::string& help);
  // What the command does with its config; returns the exit code.
  void run(std::function<int(Message config)> body);

 private:
  Message build() const;

  Context& context_;
  CLI::App* app_;
  std::string type_;
  std::string config_path_;
  std::vector<std::string> assignments_;
  std::vector<std::function<void(Message*)>> lists_;
};

// A work function of the library with progress, as a JSON report.
using WorkFunction = invar_status* (*)(invar_runtime*, const void*, size_t, invar_cancel*,
                                       const invar_progress_callback*, invar_bytes**);
Message run_work(Context& context, WorkFunction work, const Message& config, const std::string& report_type);

// Prints the report as JSON when asked, else by `print`.
void show(const Context& context, const Message& report, const std::function<void(const nlohmann::json&)>& print);

// Reading a report that leaves out what is not known.
double number(const nlohmann::json& object, const char* key, double absent = 0);
long long integer(const nlohmann::json& object, const char* key);
std::string text(const nlohmann::json& object, const char* key);
void print_warnings(const nlohmann::json& report);

void add_checkpoint_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands);
void add_model_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands);
void add_config_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands);
void add_tokenizer_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands);
void add_data_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands);
void add_bench_commands(CLI::App& app, Context& context, std::vector<std::unique_ptr<Command>>& commands);

}  // namespace cli
