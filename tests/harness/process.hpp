// Runs the executable that was built, as a user does.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace sluice::test {

struct Finished {
  int exit_code = -1;  // 128 + signal where it was killed
  std::string out, err;
};

// `arguments` of `sluice`, and what it reads from standard input.
Finished run_sluice(const std::vector<std::string>& arguments, const std::string& input = "");

// The exit code, with standard output and error written to these files; "": the stream is closed.
int run_sluice_into(const std::vector<std::string>& arguments, const std::string& out,
                    const std::string& err);

// Starts it, kills it after `delay` with SIGKILL, and waits. True: it was still running.
bool kill_sluice(const std::vector<std::string>& arguments, std::chrono::microseconds delay);

}  // namespace sluice::test
