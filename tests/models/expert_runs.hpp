// Runs of models with experts through an engine, held against the run with everything resident.
#pragma once
#include <cstdint>
#include <vector>

#include "core/engine/budget.hpp"
#include "tests/models/policy_runs.hpp"

namespace sluice::test {

inline constexpr std::uint32_t kExpertTokens = 8;  // new ones of each request

// Four prompts, of 1 to 65 tokens.
std::vector<GenerationRequest> expert_requests(const ModelRig& rig);

// What a pass walks beside experts, and in how many layers it has experts.
struct WalkedUnits {
  std::uint64_t walked = 0, expert_layers = 0;
};
WalkedUnits walked_units(const ModelView& view);

Output resident_output(ModelRig& rig, std::uint32_t batch, const TransferOf& transfer);

// Checks that the policy's run with poisoned slots has the output expected, refuses nothing, and
// acquires just the experts that its routers chose.
void compare_with_resident(ModelRig& rig, IOffloadPolicy& policy, const char* name,
                           const BudgetSpec& budget, std::uint32_t batch, const Output& expected);

}  // namespace sluice::test
