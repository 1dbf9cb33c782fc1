// What may stand in the place of a file or a directory, and what is said of it.
#include "core/files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"
#include "tests/unprivileged.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::ScratchDir;
using test::Unprivileged;

std::string read_message(const fs::path& path) {
  return input_error([&] { read_file(path, 1 << 20); });
}

}  // namespace

TEST_CASE("a file is read whole, up to a limit") {
  const ScratchDir dir;
  std::string bytes(1'000'003, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 % 251);
  const fs::path file = dir.write("a", bytes);
  CHECK(read_file(file, bytes.size()) == bytes);
  CHECK(input_error([&] { read_file(file, bytes.size() - 1); }) ==
        file.string() + ": larger than 1000002 bytes, the most that is read of it");
  CHECK(read_file(dir.write("b", ""), 0).empty());
  CHECK(InputFile(file).bytes() == bytes.size());
  // Such files say that they have no bytes.
  CHECK(read_file("/proc/self/status", 1 << 20).starts_with("Name:"));
}

TEST_CASE("what is no file is refused by name, with the reason, and not waited for") {
  const ScratchDir dir;
  const std::string at = dir.path().string() + "/";
  CHECK(read_message(at + "none") == at + "none: no such file");
  fs::create_symlink("nothing", at + "dangling");
  CHECK(read_message(at + "dangling") == at + "dangling: no such file");
  CHECK(read_message(dir.path()) == dir.path().string() + ": not a file, but a directory");
  REQUIRE(::mkfifo((at + "pipe").c_str(), 0600) == 0);
  CHECK(read_message(at + "pipe") == at + "pipe: not a file, but a pipe");
  CHECK(read_message("/dev/zero") == "/dev/zero: not a file, but a device");
  fs::create_symlink("loop", at + "loop");
  CHECK(read_message(at + "loop") ==
        at + "loop: cannot be opened: Too many levels of symbolic links");
  dir.write("file", "x");
  CHECK(read_message(at + "file/below") == at + "file/below: cannot be opened: Not a directory");
  CHECK(read_message("/proc/self/mem") ==
        "/proc/self/mem: reading failed after 0 bytes: Input/output error");
}

TEST_CASE("a file that may not be read says so") {
  const ScratchDir dir;
  fs::permissions(dir.path(), fs::perms::all);
  const fs::path file = dir.write("secret", "x");
  fs::permissions(file, fs::perms::none);
  const Unprivileged user;
  CHECK(read_message(file) == file.string() + ": cannot be opened: Permission denied");
}

TEST_CASE("a directory that may not be read or searched is named") {
  const ScratchDir dir;
  fs::permissions(dir.path(), fs::perms::all);
  const fs::path closed = dir.path() / "closed";
  fs::create_directory(closed);
  fs::permissions(closed, fs::perms::none);
  {
    const Unprivileged user;
    CHECK(input_error([&] { entries_of(closed); }) ==
          closed.string() + ": cannot be listed: Permission denied");
    CHECK(directory_exists(closed));
    const std::string below = (closed / "a").string();
    CHECK(input_error([&] { path_exists(below); }) ==
          below + ": cannot be looked at: Permission denied");
    CHECK(input_error([&] { directory_exists(below); }) ==
          below + ": cannot be looked at: Permission denied");
  }
  fs::permissions(closed, fs::perms::all);
}

TEST_CASE("what is there and what is not") {
  const ScratchDir dir;
  dir.write("file", "");
  fs::create_symlink("nothing", dir.path() / "dangling");
  fs::create_symlink("loop", dir.path() / "loop");
  CHECK(path_exists(dir.path() / "file"));
  CHECK(path_exists(dir.path()));
  CHECK_FALSE(path_exists(dir.path() / "none"));
  CHECK_FALSE(path_exists(dir.path() / "file" / "below"));
  CHECK_FALSE(path_exists(dir.path() / "dangling"));
  CHECK(path_exists(dir.path() / "dangling", Links::themselves));
  CHECK(path_exists(dir.path() / "loop", Links::themselves));
  CHECK_THAT(input_error([&] { path_exists(dir.path() / "loop"); }),
             Contains("/loop: cannot be looked at: Too many levels of symbolic links"));
  CHECK(directory_exists(dir.path()));
  CHECK_FALSE(directory_exists(dir.path() / "file"));
  CHECK_FALSE(directory_exists(dir.path() / "none"));
}

TEST_CASE("a directory is listed in order") {
  const ScratchDir dir;
  for (const char* name : {"b", "c", "a"}) dir.write(name, "");
  CHECK(entries_of(dir.path()) ==
        std::vector<fs::path>{dir.path() / "a", dir.path() / "b", dir.path() / "c"});
  CHECK_THAT(input_error([&] { entries_of(dir.path() / "none"); }),
             Contains("/none: cannot be listed: No such file or directory"));
}

TEST_CASE("a path is absolute, or there is nothing to look from") {
  const fs::path before = fs::current_path();
  const ScratchDir dir;
  fs::create_directory(dir.path() / "gone");
  fs::current_path(dir.path() / "gone");
  const fs::path there = absolute_path("./a/../b");
  fs::remove(dir.path() / "gone");
  const std::string message = input_error([] { absolute_path("a"); });
  fs::current_path(before);
  CHECK(there == dir.path() / "gone" / "b");
  CHECK_THAT(message, StartsWith("a: there is no working directory to look from: "));
}

}  // namespace sluice
