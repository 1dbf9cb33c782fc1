// Models with experts, every policy at every budget: tokens and logits are those of the run with
// everything resident, bit by bit, however few experts are cached.
#include "tests/catch.hpp"
#include "tests/models/expert_runs.hpp"
#include "tests/models/same_decisions.hpp"

namespace sluice::test {
namespace {

std::vector<BudgetSpec> all_budgets_of(const ModelView& view) {
  const auto layers = static_cast<std::uint32_t>(view.layers);
  std::uint32_t experts = 0;
  for (const UnitInfo& unit : view.units) experts += unit.kind == UnitKind::expert;
  std::vector<BudgetSpec> out;
  for (std::uint32_t budget = 1; budget <= layers; ++budget) out.emplace_back(LayerBudget{budget});
  for (const std::uint32_t slots : {1u, 2u, 5u, 24u, experts - 1, experts})
    out.emplace_back(ExpertBudget{slots});
  return out;
}

void compare_all(ModelRig& rig, std::span<const PolicyCase> cases) {
  const ModelView view = rig.weights().view();
  for (const std::uint32_t batch : {1u, 4u}) {
    for (const PolicyCase& one : cases) {
      const PolicyPtr asked = policy_of(one);
      const Output expected = resident_output(
          rig, batch, [&](const UnitInfo& unit) { return asked->transfer(view, unit); });
      const std::vector<BudgetSpec> budgets = all_budgets_of(view);
      for (std::size_t at = 0; at < budgets.size(); ++at) {
        CAPTURE(one.name, one.depth, at, batch);
        const PolicyPtr policy = policy_of(one);
        compare_with_resident(rig, *policy, one.name, budgets[at], batch, expected);
      }
    }
  }
}

TEST_CASE("with experts every policy at every budget gives the resident run", "[experts]") {
  for (const auto& path : expert_checkpoints()) {
    CAPTURE(path.filename());
    ModelRig rig(path);
    compare_all(rig, policy_cases());
    compare_all(rig, expert_cases());
  }
}

TEST_CASE("with experts in codes every policy at every budget gives the resident run",
          "[experts]") {
  ModelRig rig(checkpoint("qwen3moe-tiny"), {}, make_test_device(), {}, Stored::all);
  compare_all(rig, quantised_cases());
  compare_all(rig, quantised_expert_cases());
}

TEST_CASE("policies of experts decide the same on the CPU and on simulated machines", "[experts]") {
  std::size_t compared = 0;
  for (const auto& path : expert_checkpoints()) compared += compare_decisions(path);
  CHECK(compared > 0);
}

}  // namespace
}  // namespace sluice::test
