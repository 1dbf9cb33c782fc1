// A run's book is that of its recorded routing replayed without the model: on the CPU, in virtual time,
// with the routers' own choice and with a synthetic one.
#include <sstream>

#include "core/device/sim_device.hpp"
#include "core/engine/engine.hpp"
#include "models/routing_replay.hpp"
#include "models/synthetic_routing.hpp"
#include "tests/catch.hpp"
#include "tests/models/policy_runs.hpp"
#include "tests/scratch_dir.hpp"
#include "tests/toy_machine.hpp"

namespace sluice::test {
namespace {

constexpr std::uint32_t kSlots[] = {1, 2, 5, 9, 17, 30};

Counters book_of(ModelRig& rig, const PolicyCase& one, std::uint32_t slots, std::uint32_t batch,
                 const RoutingHooks& hooks) {
  const PolicyPtr policy = policy_of(one);
  Engine engine(rig.device(), rig.compute(), rig.weights(), *policy, one.name, ExpertBudget{slots});
  generate(rig, engine, requests_for(rig.config().vocab), batch, hooks);
  return engine.counters();
}

// The whole book: other units and the head, too.
Counters replayed(ModelRig& rig, const PolicyCase& one, std::uint32_t slots,
                  const Routing& routing) {
  const PolicyPtr policy = policy_of(one);
  Engine engine(rig.device(), rig.compute(), rig.weights(), *policy, one.name, ExpertBudget{slots});
  RoutingReplay replay(rig.weights().view(), routing.shape);
  for (const RoutedPass& pass : routing.passes)
    replay.pass(engine, pass, &pass == &routing.passes.back());
  return engine.counters();
}

// A replay has the best guesses that there can be.
bool guesses(const PolicyCase& one) { return std::string_view(one.name) == "expert_prefetch"; }

SyntheticRouting synthetic(const ModelRig& rig) {
  return SyntheticRouting(rig.config().layers, rig.config().experts.count, {});
}

}  // namespace

TEST_CASE("a run's book is that of its recorded routing, but for better guesses", "[experts]") {
  const ScratchDir dir;
  const std::string path = dir.path() / "routing.csv";
  ModelRig cpu(checkpoint("qwen3moe-tiny"));
  ModelRig sim(checkpoint("qwen3moe-tiny"), {}, make_sim_device(toy_machine()));
  const ExpertConfig& experts = cpu.config().experts;
  const RoutingShape shape{cpu.config().layers, experts.count, experts.per_token, 1};
  for (const std::uint32_t batch : {1u, 3u})
    for (const bool own : {true, false}) {
      SyntheticRouting given = synthetic(cpu);
      RoutingFile file(path, shape);
      book_of(cpu, expert_cases()[0], 9, batch, {.given = own ? nullptr : &given, .sink = &file});
      file.finish();
      const Routing routing = read_routing(path);
      std::uint64_t hits = 0, replayed_hits = 0;  // of guesses
      REQUIRE(routing.passes.size() >= 8);
      for (const PolicyCase& one : expert_cases())
        for (const std::uint32_t slots : kSlots) {
          CAPTURE(batch, own, one.name, one.scope, slots);
          given = synthetic(cpu);
          const Counters expected =
              book_of(cpu, one, slots, batch, {.given = own ? nullptr : &given});
          for (ModelRig* rig : {&cpu, &sim}) {
            const Counters again = replayed(*rig, one, slots, routing);
            if (!guesses(one)) CHECK(again == expected);
            if (!guesses(one)) continue;
            hits += expected.hits;
            replayed_hits += again.hits;
          }
          if (own) continue;  // a device that computes nothing routes nothing
          given = synthetic(cpu);
          Counters simulated = book_of(sim, one, slots, batch, {.given = &given});
          // How far a guess got depends on the link.
          simulated.cancelled_bytes = expected.cancelled_bytes;
          CHECK(simulated == expected);
        }
      CHECK(replayed_hits > hits);
    }
}

}  // namespace sluice::test
