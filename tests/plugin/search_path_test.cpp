#include "core/plugin/search_path.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/named_files.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/plugin/scoped_env.hpp"
#include "tests/scratch_dir.hpp"
#include "tests/unprivileged.hpp"

using namespace sluice;
using namespace sluice::test;
namespace fs = std::filesystem;

namespace {

constexpr const char* kVariable = "SLUICE_PLUGIN_PATH";
const fs::path kBuilt = SLUICE_TEST_PLUGIN_DIR;

std::string message(const PluginPath& path, const std::string& name) {
  try {
    path.find(name);
    return "";
  } catch (const InputError& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("directories have their order of precedence") {
  const ScratchDir given, first, second;
  const ScopedEnv env(kVariable, first.path().string() + "::" + second.path().string());
  const std::vector<fs::path> all = PluginPath({given.path()}).directories();
  REQUIRE(all.size() == 5);
  CHECK(all[0] == given.path());
  CHECK(all[1] == first.path());
  CHECK(all[2] == second.path());
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  CHECK(executable_directory() == here);
  CHECK(all[3] == here / "strategies");
  CHECK(all[4].string().ends_with("/sluice/policies"));
}

TEST_CASE("a policy is found by its name") {
  const ScopedEnv env(kVariable, "");
  const PluginPath path({kBuilt});
  CHECK(path.find("ring_prefetch") == kBuilt / "ring_prefetch.so");
}

TEST_CASE("a given directory hides the environment and that the executable") {
  const ScratchDir given, environment;
  const fs::path in_given = given.write("mine.so", "one");
  const fs::path in_environment = environment.write("mine.so", "two");
  const ScopedEnv env(kVariable, environment.path().string());
  CHECK(PluginPath({given.path()}).find("mine") == in_given);
  CHECK(PluginPath().find("mine") == in_environment);
}

TEST_CASE("two files of one name in one rank are refused with both") {
  const ScratchDir a, b;
  const fs::path in_a = a.write("mine.so", "one"), in_b = b.write("mine.so", "two");
  const std::string both = in_a.string() + ", " + in_b.string();
  {
    const ScopedEnv env(kVariable, "");
    const std::string said = message(PluginPath({a.path(), b.path()}), "mine");
    CHECK(said == "the policy name 'mine' is there twice: " + both +
                      "; give the directory that is meant by --plugin-dir");
  }
  const ScopedEnv env(kVariable, a.path().string() + ":" + b.path().string());
  CHECK(message(PluginPath(), "mine").find(both) != std::string::npos);
  // A directory of a higher rank decides.
  CHECK(PluginPath({b.path()}).find("mine") == in_b);
  // The same bytes twice are one policy.
  b.write("mine.so", "one");
  CHECK(PluginPath().find("mine") == in_a);
}

TEST_CASE("two files of one name that cannot be read are two") {
  const ScratchDir a, b;
  for (const ScratchDir* dir : {&a, &b})
    REQUIRE(::mkfifo((dir->path() / "mine.so").c_str(), 0600) == 0);
  const ScopedEnv env(kVariable, "");
  const PluginPath path({a.path(), b.path()});
  CHECK(message(path, "mine").find("is there twice") != std::string::npos);
  CHECK(path.list().at(0).refused.find("is there twice") != std::string::npos);
}

TEST_CASE("a directory of the path that may not be read or searched is named") {
  const ScratchDir dir;
  const ScopedEnv env(kVariable, (dir.path() / "closed").string());
  fs::permissions(dir.path(), fs::perms::all);
  fs::create_directory(dir.path() / "closed");
  fs::permissions(dir.path() / "closed", fs::perms::none);
  {
    const test::Unprivileged user;
    const auto says = [&](const auto& f) {
      return input_error(f).find(dir.path().string() + "/closed") == 0;
    };
    CHECK(says([] { PluginPath().list(); }));
    CHECK(says([] { PluginPath().find("prefetch"); }));
    CHECK(says([&] { PluginPath({dir.path() / "closed" / "below"}); }));
  }
  fs::permissions(dir.path() / "closed", fs::perms::all);
}

TEST_CASE("an unknown name is refused with the nearest and where it was looked for") {
  const ScopedEnv env(kVariable, "");
  const std::string said = message(PluginPath({kBuilt}), "ring_prefech");
  CHECK(said.starts_with("no policy 'ring_prefech' (did you mean 'ring_prefetch'"));
  CHECK(said.find("there are: ") != std::string::npos);
  CHECK(said.find(kBuilt.string()) != std::string::npos);
  const ScratchDir empty;
  CHECK(message(PluginPath({empty.path()}), "x").find("there are: none (in ") != std::string::npos);
}

TEST_CASE("names that cannot be a plugin's are refused") {
  const PluginPath path({kBuilt});
  CHECK(message(path, "resident") == "policy 'resident' is a part of Sluice, not a plugin");
  CHECK(message(path, "mapped") == "policy 'mapped' is a part of Sluice, not a plugin");
  for (const char* name : {"", "./ring_prefetch", "ring_prefetch.so", "../strategies/prefetch"})
    CHECK(message(path, name).find("is not the name of a policy") != std::string::npos);
}

TEST_CASE("a bare word is a name, anything else a path") {
  for (const char* name : {"", "ring_prefetch", "x.yaml", "so", ".", ".."}) {
    CAPTURE(name);
    CHECK_FALSE(is_path(name, ".so"));
  }
  for (const std::string& name :
       {std::string("a/b"), std::string("./x"), std::string("/"), std::string("x.so"),
        std::string(".so"), std::string("x\0y", 3)}) {
    CAPTURE(name);
    CHECK(is_path(name, ".so"));
  }
}

TEST_CASE("names in a directory are sorted and of one kind") {
  const ScratchDir dir;
  for (const char* name : {"b.yaml", "a.yaml", "c.json", "d"}) dir.write(name, "");
  CHECK(names_in(dir.path(), ".yaml") == std::vector<std::string>{"a", "b"});
  CHECK(names_in(dir.path() / "nowhere", ".yaml").empty());
}

TEST_CASE("a given directory must be one") {
  const ScratchDir dir;
  CHECK_THROWS_AS(PluginPath({dir.path() / "missing"}), InputError);
  CHECK_THROWS_AS(PluginPath({dir.write("file", "")}), InputError);
  const ScopedEnv env(kVariable, "/nowhere/at/all");  // as with PATH
  CHECK_NOTHROW(PluginPath().list());
}

TEST_CASE("the list has everything with why it is refused") {
  const ScratchDir dir;
  fs::copy(kBuilt / "prefetch.so", dir.path());
  dir.write("broken.so", "nothing");
  dir.write("readme.txt", "no plugin");
  const ScopedEnv env(kVariable, "");
  const std::vector<PluginPath::Found> all = PluginPath({dir.path()}).list();
  REQUIRE(all.size() == 2);
  CHECK(all[0].name == "broken");
  CHECK(all[0].refused == (dir.path() / "broken.so").string() + ": not a shared library");
  CHECK(all[1].name == "prefetch");
  CHECK(all[1].file == dir.path() / "prefetch.so");
  CHECK(all[1].refused.empty());
}

TEST_CASE("the list loads each plugin once, finding one by name loads none") {
  const ScratchDir dir, twin;
  for (const char* name : {"by_hand.so", "returns_nothing.so", "other_abi.so"})
    fs::copy(fs::path(SLUICE_TEST_BUILD_DIR) / "test_plugins" / name, dir.path());
  fs::copy(dir.path() / "by_hand.so", twin.path());
  const fs::path mark = dir.path() / "mark";
  const ScopedEnv env(kVariable, ""), marks("SLUICE_TEST_MARK", mark.string());
  const PluginPath path({dir.path(), twin.path()});
  CHECK(path.find("by_hand") == dir.path() / "by_hand.so");
  CHECK(path.files_of("by_hand").size() == 1);
  CHECK(path.files_of("nothing").empty());
  CHECK_THROWS_AS(path.find("nothing"), InputError);
  CHECK_FALSE(fs::exists(mark));
  {
    const std::vector<PluginPath::Found> all = path.list();
    REQUIRE(all.size() >= 3);
    CHECK(all[0].plugin->descriptor().summary == std::string("written by hand"));
    CHECK(all[0].plugin->path() == all[0].file);
    CHECK(all[1].name == "other_abi");
    CHECK(all[1].plugin == nullptr);
    CHECK_FALSE(all[1].refused.empty());
  }
  CHECK(bytes_of(mark) == "by_hand\nreturns_nothing\n");
}

TEST_CASE("a link to nothing and one to itself are listed and refused by name") {
  const ScratchDir dir;
  fs::create_symlink("/nowhere/at/all.so", dir.path() / "dangling.so");
  fs::create_symlink("looping.so", dir.path() / "looping.so");
  const ScopedEnv env(kVariable, "");
  std::size_t refused = 0;
  for (const PluginPath::Found& found : PluginPath({dir.path()}).list())
    if (found.name == "dangling" || found.name == "looping")
      refused += found.refused.find(found.name + ".so") != std::string::npos;
  CHECK(refused == 2);
}
