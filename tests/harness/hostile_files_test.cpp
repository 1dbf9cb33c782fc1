// What may stand in the place of a model's files, an experiment or a directory: the command line says
// what is wrong with it, and neither waits nor dies.
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tests/catch.hpp"
#include "tests/harness/process.hpp"
#include "tests/messages.hpp"
#include "tests/plugin/scoped_env.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::Finished;
using test::run_sluice;
using test::ScopedEnv;
using test::ScratchDir;

const std::string kFixture = std::string(SLUICE_TEST_DATA) + "/hf/llama-tiny";
const std::string kLoop = "Too many levels of symbolic links";

// A file of a model and the command that reads it.
struct Reader {
  std::string file;
  std::vector<std::string> command;
};
const std::vector<Reader> kReaders = {
    {"config.json", {"inspect"}},
    {"generation_config.json", {"inspect"}},
    {"tokenizer.json", {"inspect"}},
    {"tokenizer_config.json", {"tokenize", "--chat", "--tokenizer"}},
    {"model.safetensors", {"inspect"}},
    {"chat_template.jinja", {"tokenize", "--chat", "--tokenizer"}},
};

// `reader.command` on a model whose `reader.file` is what `place` puts there.
template <typename Place>
Finished with_other(const Reader& reader, const Place& place) {
  const ScratchDir dir;
  fs::copy(kFixture, dir.path(), fs::copy_options::recursive);
  fs::remove(dir.path() / reader.file);
  place(dir.path() / reader.file);
  std::vector<std::string> words = reader.command;
  words.push_back(dir.path());
  return run_sluice(words, R"([{"messages": [{"role": "user", "content": "a"}]}])");
}

void check_refused(const Finished& done, const std::string& says) {
  INFO(done.err);
  CHECK(done.exit_code == 2);
  CHECK_THAT(done.err, StartsWith("sluice: "));
  CHECK_THAT(done.err, Contains(says));
  CHECK_THAT(done.err, !Contains("filesystem error"));
}

}  // namespace

TEST_CASE("a pipe, a directory or a link to itself in the place of a model's file is refused") {
  for (const Reader& reader : kReaders) {
    INFO(reader.file);
    check_refused(
        with_other(reader, [](const fs::path& at) { REQUIRE(::mkfifo(at.c_str(), 0600) == 0); }),
        "/" + reader.file + ": not a file, but a pipe");
    check_refused(with_other(reader, [](const fs::path& at) { fs::create_directory(at); }),
                  "/" + reader.file + ": not a file, but a directory");
    const Finished looped =
        with_other(reader, [](const fs::path& at) { fs::create_symlink(at.filename(), at); });
    check_refused(looped, kLoop);
    CHECK_THAT(looped.err, Contains("/" + reader.file + ": "));
  }
}

TEST_CASE("deep nesting, and anything behind the end, is refused in each of a model's JSON files") {
  for (const Reader& reader : kReaders) {
    if (!reader.file.ends_with(".json")) continue;
    INFO(reader.file);
    const auto holding = [&](const std::string& text) {
      return with_other(reader, [&](const fs::path& at) { std::ofstream(at) << text; });
    };
    const std::string whole = test::bytes_of(kFixture + "/" + reader.file);
    check_refused(holding(std::string(200'000, '[')), reader.file + ":1:65: nested deeper than 64");
    check_refused(holding(whole + '\0' + "junk"), ": not JSON: a zero byte");
    check_refused(holding(whole + "junk"), ": not JSON: ");
  }
}

TEST_CASE("an index of shards that is a pipe, or whose shard is one, is refused") {
  const ScratchDir dir;
  fs::copy(std::string(SLUICE_TEST_DATA) + "/hf/qwen3-tiny-tied-sharded", dir.path(),
           fs::copy_options::recursive);
  for (const char* name : {"model-00002-of-00005.safetensors", "model.safetensors.index.json"}) {
    fs::remove(dir.path() / name);
    REQUIRE(::mkfifo((dir.path() / name).c_str(), 0600) == 0);
    check_refused(run_sluice({"inspect", dir.path()}),
                  fmt::format("/{}: not a file, but a pipe", name));
  }
}

TEST_CASE("deep nesting on standard input, and what is behind its end, is refused") {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  for (const char* option : {"--chat", "--decode", "--no-special"}) {
    INFO(option);
    const auto tokenize = [&](const std::string& input) {
      return run_sluice({"tokenize", "--tokenizer", kFixture, option}, input);
    };
    check_refused(tokenize(deep), "standard input:1:65: nested deeper than 64 levels");
    check_refused(tokenize("[{\"messages\": " + deep + "}]"), "nested deeper than 64 levels");
    check_refused(tokenize(std::string("[]\0[]", 5)), "standard input:1:3: not JSON: a zero byte");
    check_refused(tokenize("[\n1,]"), "standard input:2:3: not JSON: ");
  }
}

TEST_CASE("experiments, plugins and decisions that are no files are refused") {
  const ScratchDir dir;
  for (const char* name : {"p.yaml", "p.so", "p.jsonl"})
    REQUIRE(::mkfifo((dir.path() / name).c_str(), 0600) == 0);
  const std::string at = dir.path().string() + "/";
  check_refused(run_sluice({"run", at + "p.yaml"}), "p.yaml: not a file, but a pipe");
  check_refused(run_sluice({"plugins", "check", at + "p.so"}), "p.so: not a file, but a pipe");
  check_refused(run_sluice({"replay", at + "p.jsonl"}), "p.jsonl: not a file, but a pipe");
}

TEST_CASE("directories that cannot be looked into are named") {
  const ScratchDir dir;
  const std::string loop = dir.path() / "loop";
  fs::create_symlink("loop", loop);
  const std::string yaml =
      dir.write("x.yaml", "model: {synthetic: tiny-dense}\ngeneration: {prompts: [{random: 3}]}\n");
  check_refused(run_sluice({"plugins", "list", "--plugin-dir", loop}), loop);
  {
    const ScopedEnv path("SLUICE_PLUGIN_PATH", loop);
    check_refused(run_sluice({"plugins", "list"}), loop);
    check_refused(run_sluice({"plugins", "info", "prefetch"}), loop);
  }
  {
    const ScopedEnv configs("SLUICE_CONFIG_DIR", loop);
    check_refused(run_sluice({"inspect", "synthetic:tiny-dense"}), loop);
  }
  check_refused(run_sluice({"inspect", loop}), loop);
  check_refused(run_sluice({"tokenize", "--tokenizer", loop}, "[]"), loop);
  check_refused(run_sluice({"run", yaml, "--out", loop}), loop);
  check_refused(run_sluice({"sweep", yaml, "--out", loop}), loop);
  check_refused(run_sluice({"synthesize", "tiny-dense", "--to", loop}), loop);
  check_refused(run_sluice({"synthesize", "tiny-dense", "--to", loop + "/x"}), loop);
  check_refused(run_sluice({"plugins", "new", "mine", "--to", loop}), loop);
}

TEST_CASE("no control character of a file or of the command line reaches the terminal") {
  const std::string bad = "\x1b[31m\x07\xC2\x9B";
  const auto check = [](const Finished& done) {
    INFO(done.err);
    CHECK(done.exit_code == 2);
    CHECK_THAT(done.err, Contains("\\x1b[31m\\x07\\u009b"));
    for (const char c : done.err) CHECK((c == '\n' || static_cast<unsigned char>(c) >= 0x20));
  };
  check(run_sluice({"inspect", "/none" + bad}));
  check(run_sluice({"plugins", "list", "--" + bad}));
  check(run_sluice({"plugins", "list", bad}));
  const std::string escaped = "\\u001b[31m\\u0007\\u009b";
  check(with_other({"model.safetensors", {"inspect"}}, [&](const fs::path& at) {
    const std::string header = "{\"" + escaped + "\": {\"dtype\": 1}}";
    const std::uint64_t length = header.size();
    std::ofstream(at, std::ios::binary)
        << std::string(reinterpret_cast<const char*>(&length), sizeof length) << header;
  }));
  check(with_other({"tokenizer.json", {"inspect"}}, [&](const fs::path& at) {
    std::ofstream(at) << "{\"normalizer\": {\"type\": \"" + escaped + "\"}}";
  }));
  const ScratchDir dir;
  check(run_sluice({"run", dir.write("x.yaml", "\"\\e[31m\\a\\u009b\": 1\n")}));
}

}  // namespace sluice
