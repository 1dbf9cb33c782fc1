// What no policy can beat: a cache that knows what will be needed.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/policy.hpp"

namespace sluice {

// Units that one step needs together, each once.
struct NeededTogether {
  Phase phase = Phase::decode;
  std::vector<UnitId> units;
};

// How many units of `steps` are there when their step begins, by phase: those that come later cost a
// load each. `slots`, at least as many as a step needs, are empty at first; a miss takes that of the
// unit whose next use is furthest away, never of one that its own step needs (Belady, "A study of
// replacement algorithms for a virtual-storage computer", 1966).
struct BestHits {
  std::uint64_t prefill = 0, decode = 0;
};
BestHits best_possible(std::span<const NeededTogether> steps, std::size_t slots);

}  // namespace sluice
