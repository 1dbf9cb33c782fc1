// Two that write one file: what appears under its name is always one of them, and whole.
#include "core/unfinished_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "core/files.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {

namespace fs = std::filesystem;
using Name = UnfinishedFile::Name;
using test::bytes_of;
using test::ScratchDir;

namespace {

void write(const UnfinishedFile& file, const std::string& text) {
  REQUIRE(::write(file.descriptor(), text.data(), text.size()) ==
          static_cast<ssize_t>(text.size()));
}

}  // namespace

TEST_CASE("a PATH.part that another one is writing is left to it") {
  const ScratchDir dir;
  const fs::path path = dir.path() / "a";
  UnfinishedFile first(path, Name::part);
  write(first, "half");
  CHECK_THROWS_WITH(UnfinishedFile(path, Name::part), Contains("another process is writing it"));
  write(first, " and half");
  first.finish();
  CHECK(bytes_of(path) == "half and half");
  CHECK(entries_of(dir.path()).size() == 1);
}

TEST_CASE("a PATH.part that was left behind gives way") {
  for (const Name name : {Name::part, Name::none}) {
    const ScratchDir dir;
    const fs::path path = dir.path() / "a";
    dir.write("a.part", "left");
    UnfinishedFile file(path, name);
    write(file, "whole");
    file.finish();
    CHECK(bytes_of(path) == "whole");
    CHECK(entries_of(dir.path()).size() == 1);
  }
}

TEST_CASE("of two without a name the last one to finish stays") {
  const ScratchDir dir;
  const fs::path path = dir.path() / "a";
  UnfinishedFile first(path, Name::none), second(path, Name::none);
  write(first, "first");
  write(second, "second");
  second.finish();
  CHECK(bytes_of(path) == "second");
  first.finish();
  CHECK(bytes_of(path) == "first");
  CHECK(entries_of(dir.path()).size() == 1);
}

TEST_CASE("many that finish at once all do") {
  constexpr int kEach = 200;
  const ScratchDir dir;
  const fs::path path = dir.path() / "a";
  const std::string text(1 << 14, 'x');
  std::array<std::string, 4> failures;
  {
    std::vector<std::jthread> writers;
    for (std::string& failure : failures)
      writers.emplace_back([&] {
        try {
          for (int i = 0; i < kEach; ++i) {
            UnfinishedFile file(path, Name::none);
            if (::write(file.descriptor(), text.data(), text.size()) !=
                static_cast<ssize_t>(text.size()))
              throw Error("not written");
            file.finish();
          }
        } catch (const Error& error) {
          failure = error.what();
        }
      });
  }
  for (const std::string& failure : failures) CHECK(failure == "");
  CHECK(bytes_of(path) == text);
  CHECK(entries_of(dir.path()).size() == 1);
}

TEST_CASE("what is no file does not give way to one") {
  const ScratchDir dir;
  fs::create_directory(dir.path() / "a");
  REQUIRE(::mkfifo((dir.path() / "b").c_str(), 0600) == 0);
  for (const Name name : {Name::part, Name::none})
    for (const char* path : {"a", "b"})
      CHECK_THAT(input_error([&] { UnfinishedFile(dir.path() / path, name); }),
                 Contains(std::string(path) + ": is there and not a file"));
}

}  // namespace sluice
