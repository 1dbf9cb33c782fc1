// On a GPU, whatever a policy decides, the tokens and logits are those of the resident run there.
#include <array>

#include "tests/catch.hpp"
#include "tests/models/policy_runs.hpp"

namespace sluice::test {
namespace {

TEST_CASE("on the GPU every policy at every budget gives the resident run bit by bit", "[gpu]") {
  PolicyRuns runs;
  for (const char* name : {"qwen3-tiny", "llama-tiny", "qwen2-f16-yarn", "qwen3-tiny-f32",
                           "qwen3-tiny-tied-sharded"}) {
    const auto path = checkpoint(name);
    ModelRig rig(path, {}, make_test_device(), {}, Stored::all);
    compare_policies(rig, path, std::array{false, true}, runs);
  }
  CHECK(runs.moved_bytes > 0);
}

TEST_CASE("on the GPU weights that are not pinned give the resident run", "[gpu]") {
  const auto path = checkpoint("qwen3-tiny");
  std::uint64_t all = 0;
  {
    const ModelRig whole(path);
    all = whole.weights().pinned_bytes();
  }
  PolicyRuns runs;
  ModelRig rig(path, {}, make_test_device(), all / 2);
  REQUIRE(rig.weights().unpinned_bytes() > 0);
  compare_policies(rig, path, std::array{true}, runs);
}

}  // namespace
}  // namespace sluice::test
