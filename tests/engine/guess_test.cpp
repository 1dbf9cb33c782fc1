// Guesses: held back, topped up, overtaken, cancelled.
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"

namespace sluice::test {
namespace {

using Reach = RecordingDevice::Reach;

// Four layers: 1 3 5 7 attention of 1024 bytes, 2 4 6 8 mlp of 2304 bytes, 9 the head.
struct GuessRig {
  explicit GuessRig(EngineOptions options, std::uint32_t budget = 4, std::uint32_t lanes = 1)
      : bench(device, {.layers = 4}), walker(bench) {
    policy.on_layout = [=](const ModelView&, const Budget&) { return Layout{.lanes = lanes}; };
    policy.on_before = [this](const Step&, Actions& actions) {
      for (UnitId unit : drops) actions.drop(unit);
      for (UnitId unit : wishes) static_cast<void>(actions.prefetch(unit));
      wishes.clear();
      drops.clear();
    };
    engine = std::make_unique<Engine>(bench.device, bench.compute, bench.store, policy, "tested",
                                      LayerBudget{budget}, options);
    device.calls.clear();
  }
  std::uint64_t loaded(UnitId unit) const {
    std::uint64_t sum = 0;
    for (const auto& call : device.calls)
      if (call.what == "load" && call.unit == unit) sum += call.bytes;
    return sum;
  }
  ~GuessRig() {
    engine.reset();
    CHECK(walker.wrong_reads() == 0);
  }

  RecordingDevice device;
  Bench bench;
  Walker walker;
  ScriptedPolicy policy;
  std::vector<UnitId> wishes, drops;
  std::unique_ptr<Engine> engine;
};

}  // namespace

TEST_CASE("guesses fill their window and no more until it is reached") {
  GuessRig rig({.chunk_bytes = 256, .guess_window_bytes = 1024 + 512});
  rig.wishes = {3, 4, 5};
  rig.walker.step(*rig.engine, {1}, {2});
  CHECK(rig.loaded(1) == 1024);
  CHECK(rig.loaded(3) == 1024);
  CHECK(rig.loaded(4) == 512);
  CHECK(rig.loaded(5) == 0);
  CHECK(rig.engine->counters().h2d_bytes == 2 * 1024 + 2304 + 1024);  // counted at the wish
  rig.device.reach = Reach::always;
  rig.walker.step(*rig.engine, {1});
  // Each entry into the engine opens the window anew: acquire, use, close.
  CHECK(rig.loaded(4) == 2304);
  CHECK(rig.loaded(5) == 1024);
  CHECK(rig.engine->counters().cancelled_bytes == 0);
}

TEST_CASE("a guess does not go ahead of what is certain") {
  GuessRig rig({});
  rig.wishes = {3, 2};
  rig.walker.step(*rig.engine, {1}, {2});
  std::vector<UnitId> order;
  for (const auto& call : rig.device.calls)
    if (call.what == "load") order.push_back(call.unit);
  CHECK(order == std::vector<UnitId>{1, 2, 3});
}

TEST_CASE("a needed guess is issued at once and waited for") {
  for (const std::uint32_t lanes : {0u, 1u, 3u})
    for (const std::uint64_t window : {0, 512}) {
      CAPTURE(lanes, window);
      GuessRig rig({.chunk_bytes = 256, .guess_window_bytes = window}, 4, lanes);
      rig.wishes = {4};
      rig.walker.step(*rig.engine, {1});
      CHECK(rig.loaded(4) == window);
      rig.walker.step(*rig.engine, {4});
      CHECK(rig.loaded(4) == 2304);
      CHECK(rig.engine->counters().misses == 1);
      CHECK(rig.engine->counters().hits == 1);
    }
}

TEST_CASE("a guess that becomes certain is issued when it is wished for again") {
  GuessRig rig({.guess_window_bytes = 0});
  rig.wishes = {4, 6};
  rig.walker.step(*rig.engine, {1});
  CHECK(rig.loaded(4) == 0);
  rig.wishes = {4, 6};
  rig.walker.step(*rig.engine, {3}, {4});
  CHECK(rig.loaded(4) == 2304);
  CHECK(rig.loaded(6) == 0);
  CHECK(rig.engine->counters().loads == 4);
}

TEST_CASE("an evicted guess is cancelled and counted apart") {
  for (const std::uint64_t window : {0, 512}) {
    CAPTURE(window);
    GuessRig rig({.chunk_bytes = 256, .guess_window_bytes = window, .poison = window == 0});
    rig.wishes = {4};
    rig.walker.step(*rig.engine, {1});
    rig.drops = {4};
    rig.walker.step(*rig.engine, {1});
    const Counters& counters = rig.engine->counters();
    CHECK(counters.cancelled_bytes == 2304 - window);
    CHECK(counters.h2d_bytes == 1024 + 2304);
    CHECK(counters.wasted == 1);
    CHECK(rig.loaded(4) == window);
    // Its slot's marks are those of the pieces that were issued.
    rig.walker.step(*rig.engine, {4, 2, 6, 8});
    CHECK(rig.loaded(4) == window + 2304);
  }
}

TEST_CASE("a wish dropped in the hook that made it is never issued") {
  GuessRig rig({});
  rig.policy.on_before = [](const Step& step, Actions& actions) {
    if (step.index != 0) return;
    CHECK(actions.prefetch(2) == Asked::accepted);
    CHECK(actions.has_slot(2));
    actions.drop(2);
    CHECK(!actions.has_slot(2));
  };
  rig.walker.step(*rig.engine, {1}, {2});
  CHECK(rig.loaded(2) == 0);
  CHECK(rig.engine->counters().cancelled_bytes == 2304);
  CHECK(rig.engine->counters().wasted == 1);
}

TEST_CASE("hints of a router are guesses unless a lease is known to need them") {
  GuessRig rig({.guess_window_bytes = 0});
  rig.policy.on_routed = [](std::span<const UnitId> units, Actions& actions) {
    for (UnitId unit : units) static_cast<void>(actions.prefetch(unit));
  };
  const std::vector<UnitId> hints{3, 4}, needs{1}, soon{4};
  rig.engine->routed(hints);
  CHECK(rig.loaded(3) + rig.loaded(4) == 0);
  {
    Lease lease = rig.engine->acquire({.index = 0, .needs = needs, .soon = soon});
    rig.engine->routed(hints);
    CHECK(rig.loaded(3) == 0);
    CHECK(rig.loaded(4) == 2304);
  }
}

}  // namespace sluice::test
