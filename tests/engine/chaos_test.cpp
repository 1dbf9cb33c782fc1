// A policy that wishes for anything, legal or not, on models of all sorts: the results stay right and
// every access stays in order.
#include "tests/catch.hpp"
#include "tests/engine/chaos_runs.hpp"

namespace sluice::test {
TEST_CASE("chaos on the recorder: nothing wrong and nothing out of order in 2000 runs") {
  std::uint64_t refused = 0, cancelled = 0, wasted = 0, hits = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    const ChaosCase c = chaos_case(seed);
    RecordingDevice device({.reach = static_cast<RecordingDevice::Reach>(seed % 3), .seed = seed});
    Bench bench(device, c.shape);
    Walker walker(bench);
    walker.seed = seed;
    ChaosPolicy policy(seed);
    walker.transfer = [&](const UnitInfo& unit) {
      return policy.transfer(bench.store.view(), unit);
    };
    {
      Engine engine(bench.device, bench.compute, bench.store, policy, "chaos", c.budget, c.options);
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
    const ChaosCase c = chaos_case(seed);
    std::vector<Counters> books;
    for (const auto reach : {RecordingDevice::Reach::never, RecordingDevice::Reach::always,
                             RecordingDevice::Reach::random}) {
      RecordingDevice device({.reach = reach, .seed = seed});
      Bench bench(device, c.shape);
      Walker walker(bench);
      ChaosPolicy policy(seed);
      walker.transfer = [&](const UnitInfo& unit) {
        return policy.transfer(bench.store.view(), unit);
      };
      Engine engine(bench.device, bench.compute, bench.store, policy, "chaos", c.budget, c.options);
      walker.run(engine, 3);
      books.push_back(engine.counters());
      books.back().cancelled_bytes = 0;  // the one figure that may differ
    }
    CHECK(books[0] == books[1]);
    CHECK(books[0] == books[2]);
  }
}

TEST_CASE("chaos on threads and in virtual time: right bytes and equal decisions") {
  chaos_on_cpu_and_sim(1, 100);
}

}  // namespace sluice::test
