// Steps of several units: experts in groups, through few slots and many.
#include "core/device/make_device.hpp"
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"

namespace sluice::test {
namespace {

const Shape kShape{.layers = 3, .experts = 8, .experts_per_token = 4};

}  // namespace

TEST_CASE("experts through any number of slots read their own bytes") {
  for (std::uint32_t slots = 1; slots <= 25; ++slots)
    for (std::size_t depth : {0, 2}) {
      CAPTURE(slots, depth);
      RecordingDevice device({.reach = RecordingDevice::Reach::random, .seed = slots});
      Bench bench(device, kShape);
      Walker walker(bench);
      PrefetchPolicy policy(depth, 2);
      {
        Engine engine(bench.device, bench.compute, bench.store, policy, "tested",
                      ExpertBudget{slots}, {.poison = true});
        CHECK(engine.capacity(UnitKind::expert) == std::min(slots, 24u));
        CHECK(engine.capacity(UnitKind::attention) == 3);
        CHECK(engine.shape().kept[UnitKind::attention] == 3);
        CHECK(engine.shape().slot_bytes == 3 * 1024 + std::min(slots, 24u) * 512);
        walker.run(engine, 4);
        CHECK(engine.counters().kept_bytes == 3 * 1024);
        CHECK(engine.counters().h2d_bytes == engine.counters().loads * 512);
        CHECK(engine.counters().refused == 0);
      }
      CHECK(walker.wrong_reads() == 0);
      CHECK(walker.reads() == 4 * (3 + 3 * 4 + 1));
    }
}

TEST_CASE("a layer budget of experts gives each layer its experts") {
  const auto device = make_device({DeviceKind::cpu, 16 << 20, {}});
  for (std::uint32_t layers = 1; layers <= 4; ++layers) {
    CAPTURE(layers);
    Bench bench(*device, kShape);
    Walker walker(bench);
    PrefetchPolicy policy;
    Engine engine(bench.device, bench.compute, bench.store, policy, "tested", LayerBudget{layers},
                  {.poison = true});
    CHECK(engine.capacity(UnitKind::expert) == 8 * std::min(layers, 3u));
    walker.run(engine, 4);
    CHECK(walker.wrong_reads() == 0);
    if (layers >= 3) CHECK(engine.counters().loads <= 3 + 24);  // none twice
  }
}

TEST_CASE("whatever the layout says a budget of experts keeps every other kind") {
  RecordingDevice device;
  Bench bench(device, kShape);
  Walker walker(bench);
  ScriptedPolicy policy;
  policy.on_layout = [](const ModelView& model, const Budget& budget) {
    CHECK(budget.slots[UnitKind::attention] == 3);
    CHECK(budget.slots[UnitKind::expert] == 4);
    CHECK(model.units[10].kind == UnitKind::attention);
    return Layout{.keep = {10, 2, 3}};  // an attention unit and two experts
  };
  Engine engine(bench.device, bench.compute, bench.store, policy, "tested", ExpertBudget{4});
  CHECK(engine.shape().kept[UnitKind::attention] == 3);
  CHECK(engine.shape().kept[UnitKind::expert] == 2);
  CHECK(engine.shape().rotating[UnitKind::expert] == 2);
  // Kept units take nothing of what rotates.
  walker.step(engine, {2, 3, 4, 5, 1, 10, 19});
  // They can be read without a lease, what moves cannot.
  CHECK(engine.kept(10)->range.size == 1024);
  CHECK(engine.kept(3).has_value());
  for (const UnitId unit : {0u, 4u, 100u}) CHECK_FALSE(engine.kept(unit).has_value());
  const std::vector<UnitId> three{4, 5, 6};
  CHECK_THROWS_AS(engine.acquire({.index = 1, .needs = three}), Error);
  CHECK(walker.wrong_reads() == 0);
}

TEST_CASE("what an earlier step has read where it lies was here, what is to come was not") {
  RecordingDevice device;
  Bench bench(device, kShape);
  ScriptedPolicy policy;
  policy.on_layout = [](const ModelView&, const Budget&) { return Layout{.keep = {2}}; };
  policy.on_before = [](const Step& step, Actions& actions) {
    for (const UnitId unit : step.soon) static_cast<void>(actions.prefetch(unit));
  };
  Engine engine(bench.device, bench.compute, bench.store, policy, "tested", ExpertBudget{4});
  std::uint64_t index = 0;
  const auto here = [&](const std::vector<UnitId>& needs, const std::vector<UnitId>& soon = {}) {
    Lease lease = engine.acquire({.index = index++, .needs = needs, .soon = soon});
    std::vector<bool> out;
    for (std::size_t i = 0; i < needs.size(); ++i) {
      out.push_back(lease.was_here(i));
      static_cast<void>(lease.use(i));
    }
    return out;
  };
  CHECK(here({2, 3}, {4}) == std::vector<bool>{true, false});  // kept; to be fetched
  CHECK(here({3, 4}) == std::vector<bool>{true, false});       // read before; asked ahead
  CHECK(here({3, 4}) == std::vector<bool>{true, true});
  CHECK(here({5, 6}) == std::vector<bool>{false, false});  // 3 gives its slot
  CHECK(here({4, 3}) == std::vector<bool>{true, false});
}

TEST_CASE("one least-recently-used list with too few slots hits nothing") {
  RecordingDevice device;
  Bench bench(device, {.layers = 3, .experts = 4, .experts_per_token = 4});
  Walker walker(bench);
  walker.hints = false;
  ScriptedPolicy policy;
  Engine engine(bench.device, bench.compute, bench.store, policy, "tested", ExpertBudget{8});
  walker.run(engine, 5);
  const std::uint64_t attention_and_head = 5 * (3 + 1);
  CHECK(engine.counters().hits == attention_and_head);
  CHECK(engine.counters().misses == 5 * 12);
}

TEST_CASE("candidates of a layer are walked oldest first") {
  RecordingDevice device;
  Bench bench(device, kShape);
  Walker walker(bench);
  ScriptedPolicy policy;
  std::vector<UnitId> in_layer, all;
  policy.on_victim = [&](const UnitInfo&, const Candidates& candidates) {
    in_layer.clear();
    all.clear();
    for (UnitId u = candidates.oldest_in(1); u != kNoUnit; u = candidates.newer_in_layer(u))
      in_layer.push_back(u);
    for (UnitId u = candidates.oldest(); u != kNoUnit; u = candidates.newer(u)) all.push_back(u);
    CHECK(candidates.size() == all.size());
    return candidates.oldest();
  };
  Engine engine(bench.device, bench.compute, bench.store, policy, "tested", ExpertBudget{6});
  walker.step(engine, {11, 2});
  walker.step(engine, {12, 3, 13});
  walker.step(engine, {2});
  walker.step(engine, {4, 5, 13});  // 13 is of the open step
  CHECK(in_layer == std::vector<UnitId>{11, 12});
  CHECK(all == std::vector<UnitId>{11, 12, 3, 2});
}

}  // namespace sluice::test
