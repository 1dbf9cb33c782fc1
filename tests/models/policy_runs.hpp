// Runs of every policy at every budget, held against the run with everything resident.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/plugin/loader.hpp"
#include "core/plugin/params.hpp"
#include "tests/models/rig.hpp"

namespace sluice::test {

// A built-in policy with its parameters.
struct PolicyCase {
  const char* name;
  std::uint32_t depth;                   // of the rings; 0: the policy has no such parameter
  Encoding encoding = Encoding::native;  // in which every unit but the head crosses the link
  const char* resident = nullptr;        // the parameters, where it has them
  const char* head = nullptr;
  const char* scope = nullptr;    // of caches of experts, whose parameter `encoding` is the above
  const char* prefill = nullptr;  // likewise
};
// Those that move weights as they are stored.
std::span<const PolicyCase> policy_cases();
PolicyPtr policy_of(const PolicyCase& one);

// Those over codes.
std::span<const PolicyCase> quantised_cases();

// Caches of experts, over weights as they are stored and over codes.
std::span<const PolicyCase> expert_cases();
std::span<const PolicyCase> quantised_expert_cases();

// A few prompts of different lengths, in need of 80 positions at most.
std::vector<GenerationRequest> requests_for(std::int32_t vocab);

// What comes out of requests, one batch after the other.
struct Output {
  std::vector<GenerationResult> results;
  std::vector<std::vector<float>> last_logits;  // of the last batch

  bool operator==(const Output& other) const;  // bit by bit
};
Output generate(ModelRig& rig, ILayerProvider& provider,
                const std::vector<GenerationRequest>& requests, std::uint32_t batch,
                const RoutingHooks& routing = {});

struct PolicyRuns {
  std::size_t count = 0;
  std::uint64_t moved_bytes = 0;
};

// Checks `mapped`, every policy, and those over codes where the rig stores them: every budget from 1 to
// layers + 1, small and large batches, each of `poisons`. Tokens and logits are the resident run's over
// the same encodings, bit by bit; bytes moved are compared with a calculation of their own from `path`.
void compare_policies(ModelRig& rig, const std::filesystem::path& path,
                      std::span<const bool> poisons, PolicyRuns& runs);

}  // namespace sluice::test
