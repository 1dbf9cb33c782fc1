// A mapped file that is cut off while it is read ends the process as wrong input does.
#include "harness/cut_file.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include "core/files.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

struct Ended {
  int status = 0;
  std::string err;
};

// What becomes of a process that does this.
template <typename F>
Ended in_another_process(const F& work) {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    refuse_files_cut_while_read();
    work();
    ::_exit(0);
  }
  ::close(pipe[1]);
  Ended ended;
  std::array<char, 512> text{};
  for (ssize_t n; (n = ::read(pipe[0], text.data(), text.size())) > 0;)
    ended.err.append(text.data(), static_cast<std::size_t>(n));
  ::close(pipe[0]);
  REQUIRE(::waitpid(child, &ended.status, 0) == child);
  return ended;
}

}  // namespace

TEST_CASE("a mapped file that is cut off while it is read is wrong input") {
  const test::ScratchDir dir;
  const auto path = dir.write("file", std::string(1 << 16, 'x'));
  const Ended cut = in_another_process([&] {
    const InputFile file(path);
    const void* const at =
        ::mmap(nullptr, file.bytes(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
    if (::truncate(path.c_str(), 10) != 0) ::_exit(3);
    ::_exit(static_cast<const volatile char*>(at)[1 << 15]);
  });
  REQUIRE(WIFEXITED(cut.status));
  CHECK(WEXITSTATUS(cut.status) == 2);
  CHECK_THAT(cut.err, StartsWith("\nsluice: a file of weights was cut off"));
}

TEST_CASE("other faults of a bus end the process as ever") {
  const Ended ended = in_another_process([] { ::raise(SIGBUS), ::raise(SIGBUS); });
  REQUIRE(WIFSIGNALED(ended.status));
  CHECK(WTERMSIG(ended.status) == SIGBUS);
  CHECK(ended.err == "");
}

}  // namespace sluice
