// Runs of every policy at every budget, held against the run with everything resident.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "tests/models/rig.hpp"

namespace sluice::test {

struct PolicyRuns {
  std::size_t count = 0;
  std::uint64_t moved_bytes = 0;
};

// Checks, for `mapped` and every policy, every budget from 1 to layers + 1, small and large batches
// and each of `poisons`: tokens and logits bit by bit, and the bytes that moved against a calculation
// of its own. `path` is the rig's checkpoint.
void compare_policies(ModelRig& rig, const std::filesystem::path& path,
                      std::span<const bool> poisons, PolicyRuns& runs);

}  // namespace sluice::test
