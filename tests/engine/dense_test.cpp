// Dense models under every budget: the right bytes at every use, and exactly the bytes over the link
// that a count by hand gives.
#include "core/device/make_device.hpp"
#include "core/engine/resident_provider.hpp"
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"

namespace sluice::test {
namespace {

constexpr std::uint32_t kTokens = 4;

enum class Kind { naive, prefetch, deep, keep };

std::unique_ptr<IOffloadPolicy> make_policy(Kind kind) {
  switch (kind) {
    case Kind::naive: return std::make_unique<NaivePolicy>();
    case Kind::prefetch: return std::make_unique<PrefetchPolicy>();
    case Kind::deep: return std::make_unique<PrefetchPolicy>(2, 3);
    case Kind::keep: return std::make_unique<KeepPolicy>(1, 2);
  }
  return nullptr;
}

// A circle of L units through S slots by least recent use: nothing is ever found again, so every
// token brings all, unless all have a slot. One that keeps S - 1 and rotates the rest through the
// last slot brings L - (S - 1) a token.
std::uint64_t loads_by_hand(Kind kind, std::uint64_t layers, std::uint64_t slots) {
  if (kind == Kind::keep) return slots >= layers ? 0 : kTokens * (layers - (slots - 1));
  return slots >= layers ? layers : kTokens * layers;
}

void check_run(IDevice& device, const Shape& shape, Kind kind, std::uint32_t budget) {
  CAPTURE(shape.layers, shape.tied, static_cast<int>(kind), budget);
  Bench bench(device, shape);
  Walker walker(bench);
  const auto policy = make_policy(kind);
  Engine engine(bench.device, bench.compute, bench.store, *policy, "tested", LayerBudget{budget},
                {.chunk_bytes = 700, .poison = true});
  walker.run(engine, kTokens);
  CHECK(walker.wrong_reads() == 0);
  CHECK(walker.reads() == kTokens * (2 * static_cast<std::uint64_t>(shape.layers) + 1));

  const auto layers = static_cast<std::uint64_t>(shape.layers);
  const std::uint64_t slots = std::min<std::uint64_t>(budget, layers);
  const std::uint64_t loads = loads_by_hand(kind, layers, slots);
  const std::uint64_t layer = 1024 + 2304;  // attention and mlp, in bytes
  const Counters& counters = engine.counters();
  CHECK(counters.loads == 2 * loads);
  CHECK(counters.h2d_bytes == loads * layer);
  CHECK(counters.cancelled_bytes == 0);
  CHECK(counters.wasted == 0);
  CHECK(counters.refused == 0);
  CHECK(counters.hits + counters.misses == walker.reads());
  if (kind == Kind::naive) CHECK(counters.misses == 2 * loads);
  // One unit ahead, only the very first is missing.
  if (kind == Kind::prefetch) CHECK(counters.misses == 1);
  const std::uint64_t kept = kind != Kind::keep ? 0 : slots >= layers ? layers : slots - 1;
  CHECK(counters.kept_bytes == kept * layer);
  CHECK(engine.shape().kept[UnitKind::mlp] == kept);
  CHECK(engine.shape().slot_bytes == slots * layer);
  CHECK(engine.shape().head_bytes == (shape.tied ? 640 : 3088));
  CHECK(device.memory_use().device_bytes ==
        slots * layer + (engine.shape().head_bytes + 255) / 256 * 256);
}

}  // namespace

TEST_CASE("dense models read their own bytes and move what a count by hand gives") {
  for (std::int32_t layers : {1, 2, 3, 5, 6})
    for (const bool tied : {false, true})
      for (std::uint32_t budget = 1; budget <= static_cast<std::uint32_t>(layers) + 1; ++budget)
        for (Kind kind : {Kind::naive, Kind::prefetch, Kind::deep, Kind::keep}) {
          // Two ahead in one kind's single slot of each would throw out what comes next.
          if (kind == Kind::deep && budget < 2) continue;
          const auto device = make_device({DeviceKind::cpu, 16 << 20, {}});
          check_run(*device, {.layers = layers, .tied = tied}, kind, budget);
        }
}

TEST_CASE("dense runs have every access in order and copy what the book says") {
  for (const auto reach : {RecordingDevice::Reach::never, RecordingDevice::Reach::always})
    for (std::int32_t layers : {1, 3, 4})
      for (std::uint32_t budget = 1; budget <= static_cast<std::uint32_t>(layers) + 1; ++budget)
        for (Kind kind : {Kind::naive, Kind::prefetch, Kind::deep, Kind::keep}) {
          CAPTURE(layers, budget, static_cast<int>(kind));
          RecordingDevice device({.reach = reach});
          Bench bench(device, {.layers = layers, .uneven = true});
          Walker walker(bench);
          const auto policy = make_policy(kind);
          std::uint64_t booked = 0;
          {
            Engine engine(bench.device, bench.compute, bench.store, *policy, "tested",
                          LayerBudget{budget}, {.chunk_bytes = 512, .poison = budget % 2 == 0});
            walker.run(engine, kTokens);
            const Counters& counters = engine.counters();
            booked = counters.h2d_bytes - counters.cancelled_bytes + counters.kept_bytes +
                     engine.shape().head_bytes;
          }
          CHECK(walker.wrong_reads() == 0);
          CHECK(device.copied_bytes("load") == booked);
        }
}

TEST_CASE("a model that is resident needs no wait and no second copy") {
  for (const bool tied : {false, true}) {
    RecordingDevice device;
    const Shape shape{.layers = 3, .tied = tied, .uneven = true};
    {
      Bench bench(device, shape);
      Walker walker(bench);
      ResidentProvider resident(bench.device, bench.compute, bench.store);
      std::vector<std::uint64_t> sizes{bytes_of(shape, UnitKind::head, 3)};
      for (std::int32_t layer = 0; layer < 3; ++layer)
        for (const UnitKind kind : {UnitKind::attention, UnitKind::mlp})
          sizes.push_back(bytes_of(shape, kind, layer));
      std::uint64_t all = 0, block = 0;  // each begins at a multiple of 256 bytes
      for (const std::uint64_t bytes : sizes) {
        all += bytes;
        block += (bytes + 255) / 256 * 256;
      }
      CHECK(resident.loaded_bytes() == all);
      CHECK(device.memory_use().device_bytes == block);
      CHECK(resident.capacity(UnitKind::mlp) == 3);
      CHECK(resident.capacity(UnitKind::expert) == 0);
      const std::size_t before = device.calls.size();
      walker.run(resident, kTokens);
      CHECK(device.calls.size() == before + walker.reads());
      CHECK(walker.wrong_reads() == 0);
      const std::vector<UnitId> embedding{0}, beyond{99};
      CHECK_THROWS_AS(resident.acquire({.index = 99, .needs = embedding}), Error);
      CHECK_THROWS_AS(resident.acquire({.index = 99, .needs = beyond}), Error);
    }
    CHECK(device.memory_use().device_bytes == 0);
  }
  RecordingDevice small({.memory_limit = 5000});
  Bench bench(small, {.layers = 3});
  CHECK_THROWS_AS(ResidentProvider(small, bench.compute, bench.store), MemoryLimitError);
  CHECK(small.memory_use().device_bytes == 0);
}

TEST_CASE("a hit never waits and a unit waits for its own copy alone") {
  RecordingDevice device;
  Bench bench(device, {.layers = 3});
  Walker walker(bench);
  ScriptedPolicy policy;
  Engine engine(bench.device, bench.compute, bench.store, policy, "tested", LayerBudget{2});
  const auto waits = [&] {
    return std::count_if(device.calls.begin(), device.calls.end(),
                         [](const auto& call) { return call.what == "wait for weights"; });
  };
  walker.step(engine, {1});
  CHECK(waits() == 1);
  walker.step(engine, {1});
  CHECK(waits() == 1);
  walker.step(engine, {2, 7});  // the head has been there from the start
  CHECK(waits() == 2);
}

TEST_CASE("what a step needs goes onto the link before what its hook wished for") {
  RecordingDevice device;
  Bench bench(device, {.layers = 3});
  Walker walker(bench);
  ScriptedPolicy policy;
  policy.on_before = [](const Step& step, Actions& actions) {
    for (UnitId unit : step.soon) CHECK(actions.prefetch(unit) == Asked::accepted);
    for (UnitId unit : step.needs) static_cast<void>(actions.prefetch(unit));
  };
  Engine engine(bench.device, bench.compute, bench.store, policy, "tested", LayerBudget{3});
  walker.step(engine, {1, 2}, {6, 3});
  std::vector<UnitId> loads;
  for (const auto& call : device.calls)
    if (call.what == "load" && call.unit != 7) loads.push_back(call.unit);
  CHECK(loads == std::vector<UnitId>{1, 2, 6, 3});
}

TEST_CASE("a wish never takes the slot that its own step needs") {
  RecordingDevice device;
  Bench bench(device, {.layers = 3});
  Walker walker(bench);
  ScriptedPolicy policy;
  Asked answer{};
  policy.on_before = [&](const Step&, Actions& actions) { answer = actions.prefetch(3); };
  Engine engine(bench.device, bench.compute, bench.store, policy, "tested", LayerBudget{1});
  walker.step(engine, {1}, {3});
  CHECK(answer == Asked::no_slot);
  CHECK(engine.counters().loads == 1);
  CHECK(engine.counters().wasted == 0);
}

TEST_CASE("a slot that was given up holds nothing of its unit") {
  for (const bool poison : {false, true}) {
    RecordingDevice device;
    Bench bench(device, {.layers = 3});
    Walker walker(bench);
    ScriptedPolicy policy;
    policy.on_before = [](const Step&, Actions& actions) { actions.drop(1); };
    Engine engine(bench.device, bench.compute, bench.store, policy, "tested", LayerBudget{2},
                  {.chunk_bytes = 300, .poison = poison});
    const std::vector<UnitId> needs{1};
    Range slot;
    {
      Lease lease = engine.acquire({.index = 0, .needs = needs});
      slot = lease.use(0).range;
    }
    const std::byte* slab = bench.store.slab(1, Encoding::native);
    CHECK(device.holds(slot, slab));
    walker.next_index = 1;
    walker.step(engine, {2});
    CHECK(device.holds(slot, slab) == !poison);
  }
}

TEST_CASE("a blocking layout waits on the host for each load and still counts as a stall") {
  RecordingDevice device;
  Bench bench(device, {.layers = 2});
  Walker walker(bench);
  NaivePolicy policy;
  Engine engine(bench.device, bench.compute, bench.store, policy, "tested", LayerBudget{1});
  device.calls.clear();
  walker.step(engine, {1});
  std::vector<std::string> order;
  for (const auto& call : device.calls) order.push_back(call.what);
  CHECK(order == std::vector<std::string>{"load", "wait for weights", "sync", "read"});
}

TEST_CASE("lanes take turns and a copy is issued in chunks") {
  RecordingDevice device;
  Bench bench(device, {.layers = 4});
  Walker walker(bench);
  PrefetchPolicy policy(0, 3);
  Engine engine(bench.device, bench.compute, bench.store, policy, "tested", LayerBudget{4},
                {.chunk_bytes = 1000});
  device.calls.clear();
  walker.run(engine, 1);
  std::vector<std::uint64_t> chunks;
  std::vector<StreamId> lanes;
  for (const auto& call : device.calls)
    if (call.what == "load") {
      if (call.unit == 2) chunks.push_back(call.bytes);
      if (lanes.empty() || lanes.back() != call.stream) lanes.push_back(call.stream);
    }
  CHECK(chunks == std::vector<std::uint64_t>{1000, 1000, 304});
  REQUIRE(lanes.size() == 8);
  for (std::size_t i = 3; i < 8; ++i) CHECK(lanes[i] == lanes[i - 3]);
  CHECK(lanes[0] != lanes[1]);
  CHECK(lanes[1] != lanes[2]);
  CHECK(lanes[0] != bench.compute);
}

}  // namespace sluice::test
