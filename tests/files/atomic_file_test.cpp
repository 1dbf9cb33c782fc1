// Files that are whole or not there.
#include "core/atomic_file.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/files.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {

namespace fs = std::filesystem;
using test::bytes_of;
using test::ScratchDir;

TEST_CASE("a file appears when it is finished, in the place of an older one") {
  const ScratchDir dir;
  const fs::path path = dir.write("a", "old");
  {
    AtomicFile file(path);
    file.write("ne", 2);
    file.write("w", 1);
    CHECK(bytes_of(path) == "old");
    file.finish();
  }
  CHECK(bytes_of(path) == "new");
  write_file(dir.path() / "b", "text");
  CHECK(bytes_of(dir.path() / "b") == "text");
  CHECK(entries_of(dir.path()).size() == 2);
}

TEST_CASE("of a file that was not finished nothing is left") {
  const ScratchDir dir;
  { AtomicFile(dir.path() / "a").write("x", 1); }
  CHECK(entries_of(dir.path()).empty());
}

TEST_CASE("what stands in the place of an unfinished file is not written into") {
  const ScratchDir dir;
  const fs::path other = dir.write("other", "kept");
  fs::create_symlink(other, dir.path() / "a.part");
  write_file(dir.path() / "a", "new");
  CHECK(bytes_of(dir.path() / "a") == "new");
  CHECK(bytes_of(other) == "kept");
  REQUIRE(::mkfifo((dir.path() / "b.part").c_str(), 0600) == 0);
  write_file(dir.path() / "b", "new");
  CHECK(bytes_of(dir.path() / "b") == "new");
}

TEST_CASE("a place where no file can be made is refused") {
  const ScratchDir dir;
  const std::string at = dir.path().string() + "/";
  CHECK(input_error([&] { write_file(at + "none/a", ""); }) ==
        at + "none/a: cannot be written: No such file or directory");
  REQUIRE(::mkfifo((at + "pipe").c_str(), 0600) == 0);
  CHECK_THAT(input_error([&] { write_file(at + "pipe", ""); }),
             StartsWith(at + "pipe: is there and not a file"));
  CHECK_THAT(input_error([&] { write_file(at, ""); }), StartsWith(at + ": is there and not"));
  fs::create_directory(at + "b.part");
  CHECK_THAT(input_error([&] { write_file(at + "b", ""); }), StartsWith(at + "b: cannot be"));
}

TEST_CASE("a file that the disk refuses is an error with the reason, and is not there") {
  const ScratchDir dir;
  struct Limit {
    rlimit before{};
    Limit() {
      ::getrlimit(RLIMIT_FSIZE, &before);
      const rlimit small{1000, before.rlim_max};
      ::setrlimit(RLIMIT_FSIZE, &small);
    }
    ~Limit() { ::setrlimit(RLIMIT_FSIZE, &before); }
  };
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  std::string message;
  try {
    const Limit limit;
    write_file(dir.path() / "a", std::string(5000, 'x'));
  } catch (const Error& error) {
    message = error.what();
  }
  ::signal(SIGXFSZ, handler);
  CHECK(message == (dir.path() / "a").string() + ": writing failed: File too large");
  CHECK(entries_of(dir.path()).empty());
}

}  // namespace sluice
