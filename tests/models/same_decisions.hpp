// What a policy decides is the same on every device.
#pragma once
#include <filesystem>

namespace sluice::test {

// Runs every policy at every budget, small and large batches, on the CPU and on simulated machines
// with a slow and a fast link. Checks that each answer to a wish, each drop, each offer of candidates
// and its victim, and the engine's book are the same. Returns how many runs were compared.
std::size_t compare_decisions(const std::filesystem::path& checkpoint);

}  // namespace sluice::test
