// Whether what a run moved can be right: an offload that does nothing may still give plausible
// text.
#pragma once
#include <cstdint>
#include <string>

namespace sluice {

struct Moves {
  bool must_move = false;         // weights lie outside the slots
  std::uint64_t least_bytes = 0;  // what no policy can do without with these slots; 0: not known
  std::uint64_t moved_bytes = 0;
};

// What is wrong; empty: nothing.
std::string problem_with(const Moves& moves);

}  // namespace sluice
