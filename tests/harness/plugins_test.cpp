#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/harness/process.hpp"
#include "tests/messages.hpp"
#include "tests/plugin/scoped_env.hpp"
#include "tests/scratch_dir.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::bytes_of;
using test::Finished;
using test::run_sluice;
using test::ScopedEnv;
using test::ScratchDir;

const std::string kBadPlugins = std::string(SLUICE_TEST_BUILD_DIR) + "/test_plugins";

}  // namespace

TEST_CASE("the reserved policies are explained as plugins are") {
  const Finished resident = run_sluice({"plugins", "info", "resident", "--json"});
  REQUIRE(resident.exit_code == 0);
  const Json params = Json::parse(resident.out)["params"];
  REQUIRE(params.size() == 3);
  CHECK(params[0]["name"] == "wire");
  CHECK(params[0]["allowed"] == "native or int8 or int4");
  const Finished mapped = run_sluice({"plugins", "info", "mapped"});
  REQUIRE(mapped.exit_code == 0);
  CHECK_THAT(mapped.out, Contains("a part of Sluice") && Contains("no parameters"));
  const Finished version = run_sluice({"--version"});
  CHECK(version.exit_code == 0);
  CHECK_THAT(version.out, Catch::StartsWith("sluice "));
}

TEST_CASE("encodings name units in one way, and what names none or is in none is refused") {
  const auto generate = [](const std::string& encodings) {
    return run_sluice({"generate", "--model", "synthetic:tiny-dense", "--prompt-ids", "1",
                       "--max-new-tokens", "1", "--device", "cpu", "--gpu-layer-budget", "1",
                       "--policy", "mixed_prefetch", "--param", "encodings=" + encodings});
  };
  for (const char* taken : {"", "all=int4", "0=int8,first.mlp=int4,1-2=bf16,2-2.attention=int8",
                            "head=int4,all.expert=int4,", "last=int4"}) {
    INFO(taken);
    CHECK(generate(taken).exit_code == 0);
  }
  for (const auto& [given, why] : std::vector<std::pair<std::string, std::string>>{
           {"all", "does not end in =bf16, =int8 or =int4"},
           {"mlp=int3", "does not end in"},
           {"mlp==int4", "does not end in"},
           {"first=int4,,last=int4", "does not end in"},
           {"=int4", "names neither layers nor a kind of unit"},
           {"embedding=int4", "names neither"},
           {"1-=int4", "names neither"},
           {"-1=int4", "names neither"},
           {"0-1-2=int4", "names neither"},
           {".mlp=int4", "names neither"},
           {"mlp.attention=int4", "names neither"},
           {"mlp.=int4", "names no kind of unit behind the point"},
           {"first.=int4", "names no kind"},
           {"0.first=int4", "names no kind"},
           {"first.head=int4", "names layers of the head, which is in none"},
           {"2-1=int4", "ends before it begins"},
           {"99=int4", "the model has no layer 99"},
           {"0-99=int4", "the model has no layer 99"}}) {
    INFO(given);
    const Finished done = generate(given);
    CHECK(done.exit_code == 2);
    CHECK_THAT(done.err, Contains("encodings: ") && Contains(why));
  }
}

TEST_CASE("plugins lists and explains policies and tries them out") {
  const Finished list = run_sluice({"plugins", "list", "--json"});
  INFO(list.err);
  REQUIRE(list.exit_code == 0);
  std::set<std::string> names;
  for (const Json& entry : Json::parse(list.out)) names.insert(entry["name"].get<std::string>());
  for (const char* name : {"naive_sync", "prefetch", "ring_prefetch"})
    CHECK(names.count(name) == 1);

  const Finished info = run_sluice({"plugins", "info", "ring_prefetch", "--json"});
  REQUIRE(info.exit_code == 0);
  CHECK(Json::parse(info.out)["params"][0]["name"] == "depth");

  const Finished refused = run_sluice({"plugins", "list", "--plugin-dir", kBadPlugins, "--json"});
  REQUIRE(refused.exit_code == 0);
  std::set<std::string> wrong;
  for (const Json& entry : Json::parse(refused.out))
    if (entry["refused"].is_string()) wrong.insert(entry["name"].get<std::string>());
  CHECK(wrong == std::set<std::string>{"bad_table", "no_descriptor", "no_factory", "not_exported",
                                       "other_abi", "other_bytes", "other_compiler",
                                       "other_identity", "other_name", "resident",
                                       "two_descriptors", "unresolved"});

  for (const char* name : {"naive_sync", "prefetch", "ring_prefetch"}) {
    const Finished check = run_sluice(
        {"plugins", "check", std::string(SLUICE_TEST_PLUGIN_DIR) + "/" + name + ".so", "--json"});
    INFO(check.out);
    REQUIRE(check.exit_code == 0);
    const Json report = Json::parse(check.out);
    CHECK(report["trials"].size() == 7 + 2 + 14 + 5);  // of each model: its layers and one beyond
    for (const Json& trial : report["trials"])
      CHECK(trial["weights"].get<std::string>().ends_with("native"));
    REQUIRE(report["predicted"].size() == 9);  // three policies on three machines
    for (const Json& speed : report["predicted"]) CHECK(speed["decode_ms"].get<double>() > 0);
  }
  const Finished chaos = run_sluice({"plugins", "check", kBadPlugins + "/chaos.so"});
  CHECK(chaos.exit_code == 1);
  CHECK_THAT(chaos.out, Contains("FAILED") && Contains("refused"));
  const Finished moody = run_sluice({"plugins", "check", kBadPlugins + "/moody.so"});
  CHECK(moody.exit_code == 1);
  CHECK_THAT(moody.out, Contains("decisions differ between two devices: cpu {"));
  const Finished throws =
      run_sluice({"plugins", "check", kBadPlugins + "/throws.so", "--param", "hook=before"});
  CHECK(throws.exit_code == 1);
  CHECK_THAT(throws.out, Contains("thrown from before"));
  CHECK(run_sluice({"plugins", "check", kBadPlugins + "/other_abi.so"}).exit_code == 2);
  CHECK(run_sluice({"plugins", "check", "/nowhere.so"}).exit_code == 2);
  CHECK(run_sluice({"plugins", "info", "nothing"}).exit_code == 2);
}

namespace {

// The plugins of kBadPlugins that were loaded, in order: each writes a line when its code first runs.
std::string loaded_by(const std::vector<std::string>& arguments) {
  const ScratchDir dir;
  const ScopedEnv marks("SLUICE_TEST_MARK", dir.path() / "mark");
  const Finished done = run_sluice(arguments);
  INFO(done.err);
  CHECK(done.exit_code == 0);
  return bytes_of(dir.path() / "mark");
}

}  // namespace

TEST_CASE("a command loads the policies that it is about, once each") {
  // These of the list are loaded, one of them to be refused then.
  CHECK(loaded_by({"plugins", "list", "--plugin-dir", kBadPlugins}) ==
        "bad_table\nby_hand\nno_factory\nnot_exported\nother_identity\nreturns_nothing\n");
  CHECK(loaded_by({"plugins", "info", "by_hand", "--plugin-dir", kBadPlugins}) == "by_hand\n");
  CHECK(loaded_by({"generate", "--model", "synthetic:tiny-dense", "--prompt-ids", "1",
                   "--max-new-tokens", "2", "--plugin-dir", kBadPlugins, "--policy", "by_hand",
                   "--gpu-layer-budget", "2"}) == "by_hand\n");
  const ScratchDir dir;
  CHECK(loaded_by({"plugins", "new", "mine", "--to", dir.path(), "--plugin-dir", kBadPlugins})
            .empty());
}

TEST_CASE("a new policy gets a name that can be one, or nothing is written") {
  const ScratchDir dir;
  const std::string letters = "lower-case letters, digits and _, a letter first";
  const std::vector<std::pair<std::string, std::string>> refused{
      {"", "'' cannot be a policy's name: " + letters},
      {"Upper", "'Upper' cannot be a policy's name: " + letters},
      {"1st", "'1st' cannot be a policy's name: " + letters},
      {"_first", "'_first' cannot be a policy's name: " + letters},
      {"a-b", "'a-b' cannot be a policy's name: " + letters},
      {"a b", "'a b' cannot be a policy's name: " + letters},
      {"a/b", "'a/b' cannot be a policy's name: " + letters},
      {"../up", "'../up' cannot be a policy's name: " + letters},
      {"/abs", "'/abs' cannot be a policy's name: " + letters},
      {"\u00fcber", "'\u00fcber' cannot be a policy's name: " + letters},
      {"class", "'class' cannot be a policy's name: it is a keyword of C++"},
      {"alignas", "'alignas' cannot be a policy's name: it is a keyword of C++"},
      {"xor_eq", "'xor_eq' cannot be a policy's name: it is a keyword of C++"},
      {std::string(64, 'x'), "it has 64 letters, there may be 63"},
      {std::string(5000, 'x'), "it has 5000 letters, there may be 63"},
      {"resident", "'resident' is the name of a policy of Sluice's own"},
      {"mapped", "'mapped' is the name of a policy of Sluice's own"},
      {"ring_prefetch", "a policy named 'ring_prefetch' is there already: "}};
  for (const auto& [name, message] : refused) {
    INFO(name);
    const Finished done = run_sluice({"plugins", "new", name, "--to", dir.path() / "new"});
    CHECK(done.exit_code == 2);
    CHECK_THAT(done.err, Contains(message));
    CHECK_FALSE(fs::exists(dir.path() / "new"));
  }
  // The longest that there may be, and one that holds a keyword.
  for (const std::string& name : {std::string(63, 'x'), std::string("classes")})
    CHECK(run_sluice({"plugins", "new", name, "--to", dir.path()}).exit_code == 0);
}

TEST_CASE("a new policy has its name everywhere, and no name of the SDK's") {
  const ScratchDir dir;
  for (const auto& [name, type] :
       {std::pair("keep_some", "KeepSomePolicy"), std::pair("layout", "LayoutPolicy"),
        std::pair("your_policy", "YourPolicy")}) {
    INFO(name);
    REQUIRE(run_sluice({"plugins", "new", name, "--to", dir.path()}).exit_code == 0);
    const fs::path made = dir.path() / name;
    const std::string source = bytes_of(made / (std::string(name) + ".cpp"));
    CHECK_THAT(source, Contains("class " + std::string(type) + " final"));
    CHECK_THAT(source, Contains(", " + std::string(name) + ", \"0.1\""));
    for (const fs::directory_entry& entry : fs::directory_iterator(made)) {
      const std::string text = bytes_of(entry.path());
      CHECK_THAT(text, !Contains("my_policy") && !Contains("MyPolicy"));
      CHECK_THAT(text, Contains(name));
    }
  }
}

}  // namespace sluice
