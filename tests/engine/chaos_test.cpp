// A policy that wishes for anything, legal or not, on models of all sorts: the results stay right and
// every access stays in order.
#include "core/device/make_device.hpp"
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"

namespace sluice::test {
namespace {

struct Case {
  Shape shape;
  BudgetSpec budget;
  EngineOptions options;
};

Case make_case(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  Case out;
  out.shape.layers = 1 + static_cast<std::int32_t>(rng() % 6);
  out.shape.tied = rng() % 2 == 0;
  out.shape.uneven = rng() % 2 == 0;
  const auto layers = static_cast<std::uint32_t>(out.shape.layers);
  out.budget = LayerBudget{1 + static_cast<std::uint32_t>(rng() % (layers + 1))};
  if (rng() % 2 == 0) {
    out.shape.experts = 2 + static_cast<std::int32_t>(rng() % 6);
    out.shape.experts_per_token = 1 + static_cast<std::int32_t>(rng() % 2);
    if (rng() % 2 == 0) out.budget = ExpertBudget{1 + static_cast<std::uint32_t>(rng() % 9)};
  }
  out.options.chunk_bytes = 1 + rng() % 1500;
  out.options.guess_window_bytes = rng() % 4 == 0 ? 0 : rng() % 4000;
  out.options.poison = rng() % 2 == 0;
  return out;
}

}  // namespace

TEST_CASE("chaos on the recorder: nothing wrong and nothing out of order in 2000 runs") {
  std::uint64_t refused = 0, cancelled = 0, wasted = 0, hits = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    const Case c = make_case(seed);
    RecordingDevice device({.reach = static_cast<RecordingDevice::Reach>(seed % 3), .seed = seed});
    Bench bench(device, c.shape);
    Walker walker(bench);
    walker.seed = seed;
    ChaosPolicy policy(seed);
    {
      Engine engine(device, bench.compute, bench.store, policy, "chaos", c.budget, c.options);
      walker.run(engine, 3);
      const Counters& counters = engine.counters();
      refused += counters.refused;
      cancelled += counters.cancelled_bytes;
      wasted += counters.wasted;
      hits += counters.hits;
      CHECK(counters.hits + counters.misses == walker.reads());
      CHECK(counters.cancelled_bytes <= counters.h2d_bytes);
    }
    REQUIRE(walker.wrong_reads() == 0);
    REQUIRE(device.violations == std::vector<std::string>{});
    REQUIRE(device.memory_use().device_bytes == 0);
  }
  // The runs were as wild as they were meant to be.
  CHECK(refused > 1000);
  CHECK(cancelled > 100000);
  CHECK(wasted > 1000);
  CHECK(hits > 1000);
}

TEST_CASE("chaos decides the same whenever copies arrive") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    const Case c = make_case(seed);
    std::vector<Counters> books;
    for (const auto reach : {RecordingDevice::Reach::never, RecordingDevice::Reach::always,
                             RecordingDevice::Reach::random}) {
      RecordingDevice device({.reach = reach, .seed = seed});
      Bench bench(device, c.shape);
      Walker walker(bench);
      ChaosPolicy policy(seed);
      Engine engine(device, bench.compute, bench.store, policy, "chaos", c.budget, c.options);
      walker.run(engine, 3);
      books.push_back(engine.counters());
      books.back().cancelled_bytes = 0;  // the one figure that may differ
    }
    CHECK(books[0] == books[1]);
    CHECK(books[0] == books[2]);
  }
}

TEST_CASE("chaos on threads: the bytes are right") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const Case c = make_case(seed);
    const auto device = make_device({DeviceKind::cpu, 16 << 20, {}});
    Bench bench(*device, c.shape);
    Walker walker(bench);
    walker.seed = seed;
    ChaosPolicy policy(seed);
    Engine engine(*device, bench.compute, bench.store, policy, "chaos", c.budget, c.options);
    walker.run(engine, 4);
    REQUIRE(walker.wrong_reads() == 0);
  }
}

TEST_CASE("the recorder sees an edge that is missing") {
  const auto violations = [](RecordingDevice::Lose lose, std::uint32_t lanes, bool poison) {
    RecordingDevice device({.lose = lose});
    Bench bench(device, {.layers = 5});
    Walker walker(bench);
    PrefetchPolicy policy(1, lanes);
    {
      Engine engine(device, bench.compute, bench.store, policy, "tested", LayerBudget{2},
                    {.poison = poison});
      walker.run(engine, 3);
    }
    return device.violations;
  };
  const auto any_says = [](const std::vector<std::string>& all, const std::string& part) {
    return std::any_of(all.begin(), all.end(),
                       [&](const std::string& one) { return one.find(part) != std::string::npos; });
  };
  for (const std::uint32_t lanes : {1u, 2u, 3u}) {
    CAPTURE(lanes);
    CHECK(violations(RecordingDevice::Lose::nothing, lanes, false).empty());
    CHECK(any_says(violations(RecordingDevice::Lose::weights, lanes, false),
                   "read on stream 1 reads before it is written by load"));
    CHECK(any_says(violations(RecordingDevice::Lose::lane, lanes, false),
                   "writes what is still read by read on stream 1"));
    CHECK(!violations(RecordingDevice::Lose::lane, lanes, true).empty());
  }
  // One stream is in order by itself.
  CHECK(violations(RecordingDevice::Lose::weights, 0, false).empty());
}

TEST_CASE("the recorder sees memory freed under a copy and bytes of another unit") {
  RecordingDevice device;
  const StreamId lane = device.make_stream(Resource::h2d, "copy");
  const StreamId compute = device.make_stream(Resource::compute, "compute");
  Buffer from(device, Buffer::Where::pinned, 100, "from");
  {
    Buffer to(device, Buffer::Where::device, 100, "to");
    const auto copy = [&](StreamId stream, std::uint64_t at, std::uint64_t source,
                          std::uint64_t bytes) {
      const std::array reads{range_of(from.data() + source, bytes)};
      const std::array writes{range_of(to.data() + at, bytes)};
      device.copy(stream, {.name = "load", .bytes = bytes, .reads = reads, .writes = writes},
                  to.data() + at, from.data() + source, bytes);
    };
    copy(lane, 0, 0, 60);
    CHECK(!device.holds(to.range(), from.data()));
    copy(lane, 60, 60, 40);
    CHECK(device.holds(to.range(), from.data()));
    CHECK(device.holds(range_of(to.data() + 10, 60), from.data() + 10));
    CHECK(!device.holds(range_of(to.data() + 10, 60), from.data()));
    copy(lane, 20, 30, 10);
    CHECK(!device.holds(to.range(), from.data()));
    CHECK(device.violations.empty());
    copy(compute, 99, 99, 1);
    CHECK(device.violations.size() == 1);
  }
  CHECK(device.violations.back().find("frees what is still written by load") != std::string::npos);
}

}  // namespace sluice::test
