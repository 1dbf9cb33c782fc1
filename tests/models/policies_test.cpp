// The part of all_policies_test.cpp that is quick enough for the sanitizers.
#include <array>

#include "core/engine/mapped_provider.hpp"
#include "tests/catch.hpp"
#include "tests/models/policy_runs.hpp"
#include "tests/models/same_decisions.hpp"

namespace sluice::test {
namespace {

TEST_CASE("policies of a small model give the resident run", "[policies]") {
  PolicyRuns runs;
  const auto path = checkpoint("qwen3-tiny-f32");
  ModelRig rig(path, {}, make_test_device(), {}, Stored::all);
  compare_policies(rig, path, std::array{false, true}, runs);
  CHECK(runs.moved_bytes > 0);
}

TEST_CASE("policies of a small model give the resident run over a slow link", "[policies]") {
  PolicyRuns runs;
  const auto path = checkpoint("llama-tiny");
  ModelRig rig(path, {}, make_cpu_device({.memory_limit = {}, .link_gbps = 2.0}));
  compare_policies(rig, path, std::array{true}, runs);
}

TEST_CASE("policies of a small model decide the same on the CPU and on simulated machines",
          "[policies]") {
  CHECK(compare_decisions(checkpoint("qwen3-tiny-f32")) > 0);
}

TEST_CASE("weights that are not pinned give the same over the ring, in order", "[policies]") {
  const auto path = checkpoint("qwen3-tiny-f32");
  const ModelRig whole(path);
  const ModelView view = whole.weights().view();
  const std::uint64_t first = view.units.front().size(Encoding::native);  // the embedding
  std::uint64_t all = 0;
  for (const UnitInfo& unit : view.units) all += unit.size(Encoding::native);
  // Nothing but what must be pinned; some slabs; all but one.
  for (const std::uint64_t limit : {first, all / 2, all - 1}) {
    PolicyRuns runs;
    ModelRig rig(path, {}, make_cpu_device(), limit);
    REQUIRE(rig.weights().unpinned_bytes() > 0);
    compare_policies(rig, path, std::array{false}, runs);
    CHECK_THROWS_AS(MappedProvider(rig.weights()), InputError);
  }
}

}  // namespace
}  // namespace sluice::test
