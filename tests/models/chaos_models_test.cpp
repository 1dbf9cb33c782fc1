// Random wishes under whole models: tokens and logits of the resident run, bit by bit, and the same
// decisions in virtual time.
#include <filesystem>
#include <sstream>

#include "core/device/sim_device.hpp"
#include "core/engine/decision_log.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/resident_provider.hpp"
#include "core/plugin/loader.hpp"
#include "tests/catch.hpp"
#include "tests/models/rig.hpp"
#include "tests/toy_machine.hpp"

namespace sluice::test {
namespace {

std::vector<GenerationResult> generate(ModelRig& rig, ILayerProvider& provider) {
  std::vector<GenerationRequest> requests;
  for (const std::size_t length : {2, 19}) {
    requests.push_back(greedy(made_up_prompt(length, 5, rig.config().vocab), 5));
    requests.back().want_first_logits = rig.device().info().executes;
  }
  const auto decoder = rig.decoder({.context = 32, .sequences = 2});
  return Generator(rig.device(), *decoder, provider, {}).run(requests, 2);
}

struct Run {
  std::vector<GenerationResult> results;
  std::string decisions;
  Counters counters;
};

Run run_chaos(ModelRig& rig, std::uint64_t seed) {
  const auto plugin =
      load_plugin(std::filesystem::path(SLUICE_TEST_BUILD_DIR) / "test_plugins" / "chaos.so");
  const PolicyPtr policy = make_policy(plugin, {{"seed", std::to_string(seed)}});
  std::ostringstream decisions;
  DecisionLog log(decisions);
  const auto layers = static_cast<std::uint32_t>(rig.config().layers);
  Engine engine(rig.device(), rig.compute(), rig.weights(), *policy, "chaos",
                LayerBudget{1 + static_cast<std::uint32_t>(seed) % (layers + 1)},
                {.chunk_bytes = 4096,
                 .guess_window_bytes = 10'000,
                 .poison = seed % 2 == 0,
                 .decisions = &log});
  Run out{generate(rig, engine), decisions.str(), engine.counters()};
  out.counters.cancelled_bytes = 0;  // how far a guess got is the link's, not the policy's
  return out;
}

}  // namespace

TEST_CASE("random wishes change nothing but time", "[policies]") {
  for (const char* name : {"qwen3-tiny", "llama-tiny", "qwen2-tiny"}) {
    ModelRig cpu(checkpoint(name)), sim(checkpoint(name), {}, make_sim_device(toy_machine()));
    std::vector<GenerationResult> expected;
    {
      ResidentProvider resident(cpu.device(), cpu.compute(), cpu.weights());
      expected = generate(cpu, resident);
    }
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      CAPTURE(name, seed);
      const Run on_cpu = run_chaos(cpu, seed), on_sim = run_chaos(sim, seed);
      REQUIRE(on_cpu.results.size() == expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(on_cpu.results[i].tokens == expected[i].tokens);
        CHECK(same_bits(on_cpu.results[i].first_logits, expected[i].first_logits));
      }
      REQUIRE(on_cpu.decisions == on_sim.decisions);
      CHECK(on_cpu.counters == on_sim.counters);
    }
  }
}

}  // namespace sluice::test
