// The subcommands of `sluice`. Each adds itself, with its options and what it does, to the command
// line; what it does throws InputError or Error, which main() catches.
#pragma once
#include <CLI/CLI.hpp>

namespace sluice {

// Set by a command that ends with another exit code than 0 without an error.
struct ExitCode {
  int value = 0;
};

void add_run(CLI::App& app, ExitCode& exit_code);
void add_sweep(CLI::App& app, ExitCode& exit_code);
void add_profile(CLI::App& app, ExitCode& exit_code);
void add_predict(CLI::App& app, ExitCode& exit_code);
void add_generate(CLI::App& app, ExitCode& exit_code);
void add_eval(CLI::App& app);
void add_replay(CLI::App& app, ExitCode& exit_code);
void add_chat(CLI::App& app);
void add_plugins(CLI::App& app, ExitCode& exit_code);
void add_inspect(CLI::App& app);
void add_probe(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_synthesize(CLI::App& app);
void add_quantize(CLI::App& app);

}  // namespace sluice
