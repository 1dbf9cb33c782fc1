// Whatever a policy decides, at whatever budget, the tokens and logits are those of the run with
// everything resident, bit by bit, and the bytes that moved are those calculated by hand.
#include <array>
#include <cstdio>

#include "tests/catch.hpp"
#include "tests/models/policy_runs.hpp"
#include "tests/models/same_decisions.hpp"

namespace sluice::test {
namespace {

TEST_CASE("every policy at every budget gives the resident run bit by bit", "[policies]") {
  PolicyRuns runs;
  for (const auto& path : dense_checkpoints()) {
    ModelRig rig(path, {}, make_test_device(), {}, Stored::all);
    compare_policies(rig, path, std::array{false, true}, runs);
  }
  std::printf("%zu runs, %.1f MB moved\n", runs.count, static_cast<double>(runs.moved_bytes) / 1e6);
}

TEST_CASE("every policy decides the same on the CPU and on simulated machines", "[policies]") {
  std::size_t compared = 0;
  for (const auto& path : dense_checkpoints()) compared += compare_decisions(path);
  std::printf("%zu runs compared\n", compared);
}

TEST_CASE("over slow links every policy at every budget gives the resident run", "[policies]") {
  for (const double gbps : {1.0, 4.0}) {
    PolicyRuns runs;
    for (const char* name : {"qwen3-tiny", "qwen3-tiny-tied-sharded"}) {
      ModelRig rig(checkpoint(name), {}, make_cpu_device({.memory_limit = {}, .link_gbps = gbps}),
                   {}, Stored::all);
      compare_policies(rig, checkpoint(name), std::array{true}, runs);
    }
  }
}

}  // namespace
}  // namespace sluice::test
