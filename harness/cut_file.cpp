#include "harness/cut_file.hpp"

#include <signal.h>
#include <unistd.h>

#include <string_view>

namespace sluice {
namespace {

// Within a signal handler: no more than write() and _exit(), and no file's name.
void on_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {
    ::signal(signal, SIG_DFL);  // comes once more, and then ends the process
    return;
  }
  constexpr std::string_view kMessage =
      "\nsluice: a file of weights was cut off while it was being read, or cannot be read to its "
      "end; let nothing write to the model's directory, and start again\n";
  static_cast<void>(!::write(STDERR_FILENO, kMessage.data(), kMessage.size()));
  ::_exit(2);
}

}  // namespace

void refuse_files_cut_while_read() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace sluice
