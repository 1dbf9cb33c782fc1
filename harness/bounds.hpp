// What bounds a phase of a simulated run, and how much faster it could be.
#pragma once
#include <string_view>

#include "core/device/sim_device.hpp"

namespace sluice {

struct Bound {
  // `link`, `compute` or `host`, whichever works most; `stall` where none of them works half of the
  // time, so that most of it goes by in waits of one for another.
  std::string_view by;
  // The phase would take this many times less if all other work were hidden behind that one's.
  double at_best = 1;
  // Of the phase, how much each works. The link's is that of its busier direction, the host's that of
  // its enqueueing or of operations that run on it, whichever is more.
  double link_percent = 0, compute_percent = 0, host_percent = 0;
};

// `busy` is what was worked in `elapsed_ns`, more than 0.
Bound bound_of(const BusyTimes& busy, std::uint64_t elapsed_ns);

}  // namespace sluice
