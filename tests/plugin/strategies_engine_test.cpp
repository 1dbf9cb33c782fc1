// The policies under the real engine: every read sees the right bytes, and the engine's book says
// the same as the tests' own.
#include <filesystem>

#include "core/device/cpu_device.hpp"
#include "core/plugin/loader.hpp"
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"
#include "tests/plugin/fake_engine.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

struct Choice {
  const char* name;
  ParamValues values;
};

void check_choice(const Choice& choice, std::int32_t layers, std::uint32_t budget) {
  CAPTURE(choice.name, layers, budget);
  constexpr std::uint32_t kTokens = 4;
  const auto plugin = load_plugin(std::filesystem::path(SLUICE_TEST_PLUGIN_DIR) /
                                  (std::string(choice.name) + ".so"));
  const PolicyPtr real = make_policy(plugin, choice.values);
  const auto device = make_cpu_device();
  Bench bench(*device, {.layers = layers});
  Walker walker(bench);
  Engine engine(bench.device, bench.compute, bench.store, *real, choice.name, LayerBudget{budget},
                {.chunk_bytes = 700, .poison = true});
  walker.run(engine, kTokens);
  CHECK(walker.wrong_reads() == 0);

  const PolicyPtr again = make_policy(plugin, choice.values);
  const FakeModel model = dense_model(layers);
  FakeEngine book(model, layer_budget(model, budget), *again);
  book.generate(kTokens);
  const Counters& counters = engine.counters();
  CHECK(counters.loads == book.tally().loads);
  CHECK(counters.hits == book.tally().hits);
  CHECK(counters.misses == book.tally().misses);
  CHECK(counters.wasted == book.tally().wasted);
  CHECK(counters.refused == book.tally().refused);
  CHECK(counters.cancelled_bytes == 0);
}

}  // namespace

TEST_CASE("the engine carries the policies out as the book says") {
  const Choice choices[] = {{"naive_sync", {}},
                            {"prefetch", {}},
                            {"ring_prefetch", {}},
                            {"ring_prefetch", {{"depth", "2"}, {"lanes", "2"}}},
                            {"ring_prefetch", {{"depth", "3"}}}};
  for (const Choice& choice : choices)
    for (const std::int32_t layers : {1, 2, 3, 5, 8})
      for (std::uint32_t budget = 1; budget <= static_cast<std::uint32_t>(layers) + 1; ++budget)
        check_choice(choice, layers, budget);
}
