// sluice: the command line. Exit codes: 0 done, 1 the run failed, 2 the input is wrong.
#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "core/error.hpp"
#include "harness/commands/commands.hpp"

int main(int argc, char** argv) {
  CLI::App app{"Runs language models that are bigger than the GPU they run on", "sluice"};
  app.require_subcommand(1);
  sluice::ExitCode exit_code;
  sluice::add_run(app, exit_code);
  sluice::add_sweep(app, exit_code);
  sluice::add_predict(app, exit_code);
  sluice::add_generate(app);
  sluice::add_chat(app);
  sluice::add_plugins(app, exit_code);
  sluice::add_inspect(app);
  sluice::add_probe(app);
  sluice::add_tokenize(app);
  sluice::add_synthesize(app);
  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0) throw sluice::Error("standard output cannot be written");
    return exit_code.value;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const sluice::InputError& error) {
    std::fflush(stdout);
    fmt::print(stderr, "sluice: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "sluice: {}\n", error.what());
    return 1;
  }
}
