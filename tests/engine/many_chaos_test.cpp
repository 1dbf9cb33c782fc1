// Ten thousand runs of a policy that wishes for anything. SLUICE_CHAOS_RUNS and SLUICE_CHAOS_SEED
// change how many, and with which first seed.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/catch.hpp"
#include "tests/engine/chaos_runs.hpp"

namespace sluice::test {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::stoull(text) : otherwise;
}

}  // namespace

TEST_CASE("chaos on cpu and sim: no race, results of the resident run, equal decisions") {
  const std::uint64_t runs = from_environment("SLUICE_CHAOS_RUNS", 10'000);
  const std::uint64_t seed = from_environment("SLUICE_CHAOS_SEED", 1'000'000);
  std::printf("%llu runs, seeds from %llu on\n", static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(seed));
  const Counters all = chaos_on_cpu_and_sim(seed, runs);
  // They were as wild as they were meant to be.
  CHECK(all.refused > runs);
  CHECK(all.wasted > runs);
  CHECK(all.hits > runs);
}

}  // namespace sluice::test
