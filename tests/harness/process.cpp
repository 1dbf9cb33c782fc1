#include "tests/harness/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

#include "tests/scratch_dir.hpp"

namespace sluice::test {
namespace {

// Standard streams go to files, so that no pipe can fill. One without a name is closed.
pid_t start(const std::vector<std::string>& arguments, const std::string& in,
            const std::string& out, const std::string& err) {
  std::vector<std::string> words{std::string(SLUICE_TEST_BUILD_DIR) + "/sluice"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child > 0) return child;
  const auto place = [](int stream, const std::string& name, int flags) {
    const int file = name.empty() ? -1 : ::open(name.c_str(), flags | O_CLOEXEC, 0600);
    file < 0 ? ::close(stream) : ::dup2(file, stream);
  };
  place(STDIN_FILENO, in, O_RDONLY);
  place(STDOUT_FILENO, out, O_WRONLY | O_CREAT | O_TRUNC);
  place(STDERR_FILENO, err, O_WRONLY | O_CREAT | O_TRUNC);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid failed");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Finished run_sluice(const std::vector<std::string>& arguments, const std::string& input) {
  const ScratchDir dir;
  const std::string out = dir.path() / "out", err = dir.path() / "err";
  const pid_t child = start(arguments, dir.write("in", input), out, err);
  Finished finished;
  finished.exit_code = wait_for(child);
  finished.out = bytes_of(out);
  finished.err = bytes_of(err);
  return finished;
}

int run_sluice_into(const std::vector<std::string>& arguments, const std::string& out,
                    const std::string& err) {
  return wait_for(start(arguments, "/dev/null", out, err));
}

bool kill_sluice(const std::vector<std::string>& arguments, std::chrono::microseconds delay) {
  const pid_t child = start(arguments, "/dev/null", "/dev/null", "/dev/null");
  std::this_thread::sleep_for(delay);
  ::kill(child, SIGKILL);
  return wait_for(child) == 128 + SIGKILL;
}

}  // namespace sluice::test
