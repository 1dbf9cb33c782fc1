#include <filesystem>
#include <string>

#include "harness/results_file.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

Json record(const std::string& id) {
  return {{"id", id},
          {"valid", true},
          {"reasons", Json::array()},
          {"inputs", {{"policy", {{"plugin", "ring_prefetch"}}}}},
          {"context", {{"weights", "1-9 native"}, {"model", "m"}}},
          {"figures", {{"x", 1.5}}},
          {"text", "\n\"\xff"}};
}

}  // namespace

TEST_CASE("records come back as they were written, whatever text is in them") {
  const test::ScratchDir dir;
  const auto out = dir.path() / "a" / "b";
  {
    ResultsFile file(out, true);
    file.append(record("1"));
    file.append(record("2"));
    CHECK(file.find("2") != nullptr);
    CHECK(file.find("3") == nullptr);
  }
  const ResultsFile again(out, true);
  REQUIRE(again.records().size() == 2);
  CHECK_FALSE(again.was_torn());
  CHECK(again.records()[1]["id"] == "2");
  CHECK(again.records()[0]["figures"]["x"] == 1.5);
  CHECK(again.records()[0]["text"] == "\n\"\xef\xbf\xbd");  // not UTF-8 became U+FFFD
}

TEST_CASE("a line torn at any byte is cut off and nothing else") {
  const test::ScratchDir dir;
  const std::string whole = to_line(record("1")) + "\n", second = to_line(record("2")) + "\n";
  for (std::size_t n = 0; n < second.size(); ++n) {
    dir.write("results.jsonl", whole + second.substr(0, n));
    ResultsFile file(dir.path(), true);
    REQUIRE(file.records().size() == 1);
    CHECK(file.was_torn() == (n > 0));
    file.append(record("3"));
    REQUIRE(test::bytes_of(dir.path() / "results.jsonl") == whole + to_line(record("3")) + "\n");
  }
}

TEST_CASE("a second sweep in the same directory is refused while the first is there") {
  const test::ScratchDir dir;
  {
    ResultsFile first(dir.path(), true);
    CHECK_THAT(input_error([&] { ResultsFile(dir.path(), true); }),
               Contains("another sweep is writing here"));
  }
  CHECK_NOTHROW(ResultsFile(dir.path(), true));
}

TEST_CASE("a file that holds something else is refused with its line and left alone") {
  const test::ScratchDir dir;
  Json damaged = record("2");
  damaged["figures"] = nullptr;
  Json no_verdict = record("2");
  no_verdict.erase("valid");
  for (const std::string& second : {std::string("something else\n"), std::string("no line end"),
                                    to_line(damaged) + "\n", to_line(no_verdict) + "\n"}) {
    const std::string text = to_line(record("1")) + "\n" + second;
    dir.write("results.jsonl", text);
    CHECK_THAT(input_error([&] { ResultsFile(dir.path(), true); }),
               Contains("results.jsonl:2: not a record"));
    CHECK(test::bytes_of(dir.path() / "results.jsonl") == text);
  }
  const test::ScratchDir links;
  std::filesystem::create_symlink("/dev/zero", links.path() / "results.jsonl");
  CHECK_THAT(input_error([&] { ResultsFile(links.path(), true); }), Contains("not a regular file"));
  const auto file = dir.write("plain", "");
  CHECK_THAT(input_error([&] { ResultsFile(file, true); }), Contains("cannot be made a directory"));
}

TEST_CASE("a file that was deleted meanwhile is noticed, for nothing more would be found") {
  const test::ScratchDir dir;
  ResultsFile file(dir.path(), true);
  file.append(record("1"));
  std::filesystem::remove(file.path());
  CHECK_THROWS_WITH(file.append(record("2")), Contains("was deleted while it was written"));
}

TEST_CASE("nothing is created before the first record when told so") {
  const test::ScratchDir dir;
  const auto out = dir.path() / "out";
  {
    ResultsFile file(out, false);
    CHECK_FALSE(std::filesystem::exists(out));
    file.append(record("1"));
  }
  CHECK(ResultsFile(out, false).records().size() == 1);
}

}  // namespace sluice
