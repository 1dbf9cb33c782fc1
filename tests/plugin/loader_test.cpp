#include "core/plugin/loader.hpp"

#include <random>
#include <vector>

#include "core/error.hpp"
#include "core/plugin/plugin_file.hpp"
#include "tests/catch.hpp"
#include "tests/plugin/scoped_env.hpp"
#include "tests/scratch_dir.hpp"

using namespace sluice;
using namespace sluice::test;
namespace fs = std::filesystem;

namespace {

fs::path good() { return fs::path(SLUICE_TEST_PLUGIN_DIR) / "ring_prefetch.so"; }
fs::path test_plugin(const std::string& name) {
  return fs::path(SLUICE_TEST_BUILD_DIR) / "test_plugins" / (name + ".so");
}

// The refusal's text; "" when the file was loaded. Anything but an InputError fails the test.
std::string refusal(const fs::path& file) {
  try {
    load_plugin(file);
    return "";
  } catch (const InputError& e) {
    const std::string text = e.what();
    CHECK(text.starts_with(file.string() + ": "));
    return text.substr(std::min(text.size(), file.string().size() + 2));
  }
}

// A refusal that holds all of these.
void check_says(const std::string& refused, const std::vector<std::string>& parts) {
  CAPTURE(refused);
  for (const std::string& part : parts) CHECK(refused.find(part) != std::string::npos);
}

const std::string kHeaders = "; build it against this Sluice's headers";

}  // namespace

TEST_CASE("a plugin is loaded with what it says of itself") {
  const auto plugin = load_plugin(good());
  CHECK(plugin->name() == "ring_prefetch");
  CHECK(plugin->path() == good());
  CHECK(plugin->fingerprint() == fingerprint_of(bytes_of(good())));
  REQUIRE(plugin->params().size() == 2);
  CHECK(plugin->params()[0].name == std::string("depth"));
  CHECK(refusal(test_plugin("by_hand")).empty());
}

TEST_CASE("a fingerprint by hand") {
  CHECK(fingerprint_of("") == "cbf29ce484222325");
  CHECK(fingerprint_of("a") == "af63dc4c8601ec8c");
  CHECK(fingerprint_of("foobar") == "85944171f73967e8");
}

TEST_CASE("files that are no libraries are refused") {
  const ScratchDir dir;
  CHECK(refusal(dir.path() / "missing.so") == "no such file");
  CHECK(refusal(dir.path()) == "not a file, but a directory");
  CHECK(refusal(dir.write("text.so", "int main() {}\n")) == "not a shared library");
  CHECK(refusal(dir.write("empty.so", "")) == "not a shared library");
}

TEST_CASE("truncated libraries are refused with both sizes") {
  const ScratchDir dir;
  const std::string whole = bytes_of(good());
  CHECK(refusal(dir.write("ring_prefetch.so", whole.substr(0, 20))) ==
        "truncated: 20 bytes are not even the header of a shared library");
  check_says(refusal(dir.write("ring_prefetch.so", whole.substr(0, whole.size() / 2))),
             {"truncated: its header speaks of", ", it has " + std::to_string(whole.size() / 2)});
}

TEST_CASE("a library for another processor is refused") {
  const ScratchDir dir;
  std::string bytes = bytes_of(good());
  bytes[18] = 8;  // e_machine: MIPS
  bytes[19] = 0;
  check_says(refusal(dir.write("ring_prefetch.so", bytes)),
             {"a library for another processor (ELF machine 8,"});
}

TEST_CASE("libraries that are no plugins of this Sluice are refused") {
  check_says(refusal(test_plugin("no_descriptor")), {"it has no descriptor"});
  CHECK(refusal(test_plugin("two_descriptors")) ==
        "has more than one descriptor; a library holds one policy");
  CHECK(refusal(test_plugin("other_abi")) ==
        "made for plugin ABI 7, this Sluice has ABI 4" + kHeaders);
  CHECK(refusal(test_plugin("other_bytes")) ==
        "its descriptor has 8 bytes, this Sluice's has 56" + kHeaders);
  CHECK(refusal(test_plugin("other_compiler")) ==
        "built with 'tcc 0.9, nolib', this Sluice with '" SLUICE_SIGNATURE
        "'; build both with the same compiler");
  CHECK(refusal(test_plugin("other_name")) ==
        "calls itself 'somebody', but its file is named 'other_name'; the two must be the same");
  CHECK(refusal(test_plugin("resident")) ==
        "calls itself 'resident', a name that is reserved for Sluice's own policy");
  CHECK(refusal(test_plugin("not_exported")) ==
        "has a descriptor, but does not export it as sluice_plugin_descriptor");
  CHECK(refusal(test_plugin("other_identity")) ==
        "its descriptor is not the one found in the file");
  check_says(refusal(test_plugin("no_factory")), {"lacks a summary"});
  check_says(refusal(test_plugin("bad_table")), {"its table of parameters is wrong"});
  check_says(refusal(test_plugin("unresolved")), {"the system cannot load it", "nobody_has_this"});
}

TEST_CASE("no code of a library runs that was made for something else") {
  const ScratchDir dir;
  const fs::path mark = dir.path() / "mark";
  const ScopedEnv env("SLUICE_TEST_MARK", mark.string());
  for (const char* name :
       {"other_abi", "other_bytes", "other_compiler", "other_name", "resident"}) {
    CAPTURE(name);
    CHECK_FALSE(refusal(test_plugin(name)).empty());
    CHECK_FALSE(fs::exists(mark));
  }
  CHECK(refusal(test_plugin("by_hand")).empty());
  CHECK(fs::exists(mark));  // the mark works
}

TEST_CASE("damaged files are read or refused and nothing else") {
  std::random_device seeds;
  const std::uint32_t seed = seeds();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const ScratchDir dir;
  const std::string whole = bytes_of(good());
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole.substr(0, i % 2 ? whole.size() : random() % whole.size());
    for (int j = 0; j < 8 && !bytes.empty(); ++j)
      bytes[j % 2 ? random() % bytes.size() : random() % std::min<std::size_t>(64, bytes.size())] =
          static_cast<char>(random());
    const fs::path file = dir.write("ring_prefetch.so", bytes);
    try {
      read_plugin_file(file);
    } catch (const InputError&) {
    }
  }
}

TEST_CASE("a policy outlives every other handle on its library") {
  PolicyPtr policy = make_policy(load_plugin(good()), {{"depth", "2"}});
  Layout layout;
  {
    const UnitInfo units[] = {{0, UnitKind::attention, 0, -1, {1, 0, 0}},
                              {1, UnitKind::attention, 1, -1, {1, 0, 0}}};
    const UnitId order[] = {0, 1};
    Budget budget;
    budget.slots[UnitKind::attention] = 2;
    layout = policy->layout({units, order, 2, 0, 0}, budget);
  }
  policy.reset();
  CHECK(layout.keep == std::vector<UnitId>{0, 1});
}

TEST_CASE("wrong parameters are refused before the factory runs") {
  const auto plugin = load_plugin(good());
  CHECK_THROWS_AS(make_policy(plugin, {{"depth", "65"}}), InputError);
  CHECK_THROWS_AS(make_policy(plugin, {{"width", "1"}}), InputError);
}

TEST_CASE("a factory that throws fails under the name of its policy") {
  const auto plugin = load_plugin(test_plugin("throws"));
  CHECK_THROWS_WITH(make_policy(plugin, {{"hook", "factory"}}),
                    "policy 'throws' could not be made: its factory threw: thrown from factory");
  CHECK_THROWS_WITH(make_policy(plugin, {{"hook", "factory"}, {"odd", "true"}}),
                    "policy 'throws' could not be made: its factory threw something that is not a "
                    "std::exception");
  CHECK_THROWS_WITH(make_policy(load_plugin(test_plugin("returns_nothing")), {}),
                    "policy 'returns_nothing' could not be made: its factory returned nothing");
}
