// sluice: the command line. Exit codes: 0 done, 1 the run failed, 2 the input is wrong.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>

#include "core/error.hpp"
#include "harness/build_info.hpp"
#include "harness/commands/commands.hpp"
#include "harness/cut_file.hpp"
#include "harness/progress.hpp"

namespace {

// A file opened later must not take the place of a closed standard stream, or messages end up in it.
void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) == -1) static_cast<void>(::open("/dev/null", O_RDWR));
}

// What was written and never arrived must not pass for an answer.
void check_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw sluice::Error("standard output cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_streams();
  sluice::refuse_files_cut_while_read();
  CLI::App app{"Runs language models that are bigger than the GPU they run on", "sluice"};
  app.require_subcommand(1);
  app.set_version_flag("--version", sluice::version_text());
  sluice::ExitCode exit_code;
  sluice::add_run(app, exit_code);
  sluice::add_sweep(app, exit_code);
  sluice::add_profile(app, exit_code);
  sluice::add_predict(app, exit_code);
  sluice::add_generate(app, exit_code);
  sluice::add_eval(app);
  sluice::add_replay(app, exit_code);
  sluice::add_chat(app);
  sluice::add_plugins(app, exit_code);
  sluice::add_inspect(app);
  sluice::add_probe(app);
  sluice::add_tokenize(app);
  sluice::add_synthesize(app);
  sluice::add_quantize(app);
  try {
    app.parse(argc, argv);
    check_output();
    return exit_code.value;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // it asks for help
    sluice::say(error.what());
    sluice::say("Run with --help for more information.");
    return 2;
  } catch (const sluice::InputError& error) {
    std::fflush(stdout);
    sluice::say(std::string("sluice: ") + error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    sluice::say(std::string("sluice: ") + error.what());
    return 1;
  }
}
