#include "tests/engine/chaos_runs.hpp"

#include <sstream>

#include "core/device/cpu_device.hpp"
#include "core/device/sim_device.hpp"
#include "core/engine/decision_log.hpp"
#include "core/engine/resident_provider.hpp"
#include "tests/catch.hpp"
#include "tests/toy_machine.hpp"

namespace sluice::test {
namespace {

constexpr std::uint32_t kChaosTokens = 3;

struct ChaosRun {
  std::string decisions;
  Counters counters;
  std::size_t wrong = 0;
  std::uint64_t digest = 0;
};

std::uint64_t resident_digest(const ChaosCase& c, std::uint64_t seed) {
  const auto device = make_cpu_device();
  Bench bench(*device, c.shape);
  Walker walker(bench);
  walker.seed = seed;
  const ChaosPolicy policy(seed);
  walker.transfer = [&](const UnitInfo& unit) { return policy.transfer(bench.store.view(), unit); };
  ResidentProvider resident(bench.device, bench.compute, bench.store, walker.transfer);
  walker.run(resident, kChaosTokens);
  return walker.digest();
}

ChaosRun run(IDevice& device, const ChaosCase& c, std::uint64_t seed) {
  std::ostringstream decisions;
  DecisionLog log(decisions);
  Bench bench(device, c.shape);
  Walker walker(bench);
  walker.seed = seed;
  ChaosPolicy policy(seed);
  walker.transfer = [&](const UnitInfo& unit) { return policy.transfer(bench.store.view(), unit); };
  EngineOptions options = c.options;
  options.decisions = &log;
  Engine engine(bench.device, bench.compute, bench.store, policy, "chaos", c.budget, options);
  walker.run(engine, kChaosTokens);
  ChaosRun out{decisions.str(), engine.counters()};
  out.counters.cancelled_bytes = 0;  // how far a guess got is the link's, not the policy's
  if (!device.info().executes) return out;
  out.wrong = walker.wrong_reads();
  out.digest = walker.digest();
  return out;
}

}  // namespace

ChaosCase chaos_case(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  ChaosCase out;
  out.shape.layers = 1 + static_cast<std::int32_t>(rng() % 6);
  out.shape.tied = rng() % 2 == 0;
  out.shape.uneven = rng() % 2 == 0;
  out.shape.quantised = rng() % 2 == 0;
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

Counters chaos_on_cpu_and_sim(std::uint64_t first_seed, std::uint64_t runs) {
  Counters all;
  for (std::uint64_t seed = first_seed; seed < first_seed + runs; ++seed) {
    CAPTURE(seed);
    const ChaosCase c = chaos_case(seed);
    const auto cpu = make_cpu_device();
    const auto sim = make_sim_device(toy_machine());
    const ChaosRun on_cpu = run(*cpu, c, seed), on_sim = run(*sim, c, seed);
    REQUIRE(on_cpu.wrong == 0);
    REQUIRE(on_cpu.digest == resident_digest(c, seed));
    REQUIRE(on_cpu.decisions == on_sim.decisions);
    REQUIRE(on_cpu.counters == on_sim.counters);
    all.hits += on_cpu.counters.hits;
    all.misses += on_cpu.counters.misses;
    all.wasted += on_cpu.counters.wasted;
    all.refused += on_cpu.counters.refused;
  }
  return all;
}

}  // namespace sluice::test
