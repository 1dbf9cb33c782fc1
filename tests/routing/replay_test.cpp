// Recorded routing replayed through policies, against a table that was worked out by hand, and the best
// possible against every choice there is.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>

#include "core/device/sim_device.hpp"
#include "core/engine/engine.hpp"
#include "core/plugin/loader.hpp"
#include "models/routing_replay.hpp"
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"
#include "tests/messages.hpp"
#include "tests/places.hpp"
#include "tests/toy_machine.hpp"

namespace sluice::test {
namespace {

// The most hits over all choices of what goes.
std::size_t most_hits(std::span<const NeededTogether> steps, std::set<UnitId> held,
                      std::size_t slots) {
  if (steps.empty()) return 0;
  const std::vector<UnitId>& needs = steps[0].units;
  std::size_t hits = 0;
  for (const UnitId unit : needs) hits += held.contains(unit) ? 1 : 0;
  std::vector<UnitId> spare;
  for (const UnitId unit : held)
    if (std::ranges::find(needs, unit) == needs.end()) spare.push_back(unit);
  // Which of the spare ones stay: every subset that fits.
  std::size_t best = 0;
  for (std::uint32_t stay = 0; stay < 1u << spare.size(); ++stay) {
    std::set<UnitId> next(needs.begin(), needs.end());
    for (std::size_t i = 0; i < spare.size(); ++i)
      if (stay >> i & 1) next.insert(spare[i]);
    if (next.size() <= slots) best = std::max(best, most_hits(steps.subspan(1), next, slots));
  }
  return hits + best;
}

Machine roomy_machine() {
  Machine machine = toy_machine();
  machine.device_memory_bytes = machine.host_memory_bytes = 1ull << 40;
  return machine;
}

}  // namespace

TEST_CASE("the best possible is the best of all choices") {
  const std::uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<NeededTogether> steps;
    for (int i = 0; i < 9; ++i) {
      std::set<UnitId> units;
      while (units.size() < 1 + random() % 2) units.insert(random() % 6);
      steps.push_back(
          {random() % 3 ? Phase::decode : Phase::prefill, {units.begin(), units.end()}});
    }
    const std::size_t slots = 2 + random() % 3;
    const BestHits best = best_possible(steps, slots);
    REQUIRE(best.prefill + best.decode == most_hits(steps, {}, slots));
  }
  const std::vector<NeededTogether> pair{{Phase::decode, {1, 2}}};
  CHECK_THROWS_AS(best_possible(pair, 1), Error);
}

TEST_CASE("a trace of a real model hits what was worked out by hand") {
  struct Row {
    std::uint32_t slots;
    double global, layer, lfu, best;
  };
  constexpr std::array table{Row{240, 0, 29.9, 29.5, 52.3},     Row{288, 37.7, 37.9, 37.9, 56.9},
                             Row{576, 47.7, 52.2, 56.0, 74.1},  Row{960, 66.7, 67.7, 68.7, 85.3},
                             Row{1536, 82.7, 81.7, 81.8, 93.4}, Row{2304, 92.9, 91.7, 91.5, 96.9}};
  const Routing routing = read_routing(data_directory() / "routing" / "qwen3-30b-a3b-top6.csv");
  const auto device = make_sim_device(roomy_machine());
  const Shape shape{.layers = 48, .experts = 128, .experts_per_token = 6};
  const WeightStore store(*device, make_plan(shape), PatternSource(), store_options(shape));
  const StreamId compute = device->make_stream(Resource::compute, "compute");

  double best = 0;
  const auto hit_rate = [&](const char* name, ParamValues values, std::uint32_t slots) {
    values["prefill"] = "share";  // the table's prompt has warmed the cache
    const PolicyPtr policy =
        make_policy(load_plugin(policy_directory() / (std::string(name) + ".so")), values);
    Engine engine(*device, compute, store, *policy, name, ExpertBudget{slots});
    RoutingReplay replay(store.view(), routing.shape);
    std::uint64_t hits = 0, needs = 0;
    for (const RoutedPass& pass : routing.passes) {
      const Counters changed = replay.pass(engine, pass, &pass == &routing.passes.back());
      if (pass.phase == Phase::prefill) continue;
      hits += changed.hits;
      needs += changed.hits + changed.misses;
    }
    CHECK(needs == 128 * 48 * 6);
    CHECK(engine.counters().refused == 0);
    best = 100 * static_cast<double>(best_possible(replay.needed(), slots).decode) /
           static_cast<double>(needs);
    return 100 * static_cast<double>(hits) / static_cast<double>(needs);
  };
  for (const Row& row : table) {
    CAPTURE(row.slots);
    const double global = hit_rate("expert_lru", {{"scope", "global"}}, row.slots);
    const double layer = hit_rate("expert_lru", {}, row.slots);
    const double lfu = hit_rate("expert_lfu", {{"half_life", "1000000"}}, row.slots);
    CAPTURE(global, layer, lfu, best);
    CHECK(std::abs(global - row.global) < 0.5);
    CHECK(std::abs(layer - row.layer) < 0.5);
    // The table counts a prompt's expert once for each of its tokens, the policy once for its step.
    CHECK(lfu > row.lfu - 0.5);
    CHECK(lfu < best);
    CHECK(std::abs(best - row.best) < 0.5);
    // What was chosen for: not below least recently used.
    CHECK(hit_rate("expert_lfu", {}, row.slots) > layer - 0.2);
    CHECK(hit_rate("expert_s3fifo", {}, row.slots) > layer - 0.2);
  }
}

TEST_CASE("routing of another model is refused") {
  const auto device = make_sim_device(toy_machine());
  Bench bench(*device, {.layers = 3, .experts = 8, .experts_per_token = 2});
  CHECK_THAT(input_error([&] {
               RoutingReplay(bench.store.view(),
                             {.layers = 4, .experts = 8, .per_token = 2, .expert_bytes = 1});
             }),
             Contains("4 layers of 8 experts; the model has 3 of 8"));
}

}  // namespace sluice::test
