#include "core/plugin/search_path.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "core/error.hpp"
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
