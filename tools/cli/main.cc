// invar: the command line tool. It is written on the public header alone: what it cannot do, a host cannot do.
#include <cstdio>
#include <exception>

#include "tools/cli/command.h"

namespace {

constexpr char kFooter[] =
    "Exit codes:\n"
    "  0    done\n"
    "  1    the work was done and a gate or comparison failed\n"
    "  2    wrong usage or config\n"
    "  3    bad input data\n"
    "  4    input, output or resource\n"
    "  5    internal error\n"
    "  130  interrupted (a training run has written its checkpoint)\n";

bool has_subcommand(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return true;
  }
  return false;
}

int run(int argc, char** argv) {
  cli::Context context;
  std::vector<std::unique_ptr<cli::Command>> commands;
  CLI::App app("invar: mixed-precision training and checkpoint conversion", "invar");
  app.set_version_flag("--version", invar_version_string());
  app.require_subcommand(1);
  app.footer(kFooter);
  cli::add_checkpoint_commands(app, context, commands);
  cli::add_model_commands(app, context, commands);
  cli::add_config_commands(app, context, commands);
  cli::add_tokenizer_commands(app, context, commands);
  cli::add_data_commands(app, context, commands);
  cli::add_bench_commands(app, context, commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& finished) {  // a command ran; this is its exit code
    return finished.get_exit_code();
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    const bool unknown = argc > 1 && argv[1][0] != '-' && !has_subcommand(app, argv[1]);
    if (unknown) std::fprintf(stderr, "invar: \"%s\" is no command; ", argv[1]);
    std::fprintf(stderr, "%s%s: see invar --help\n", unknown ? "" : "invar: ", error.what());
    return cli::kUsage;
  } catch (const cli::Failure& failure) {
    std::fprintf(stderr, "invar: %s\n", failure.what());
    return failure.exit_code;
  }
  return cli::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "invar: internal error: %s\n", error.what());
    return cli::kInternal;
  }
}
