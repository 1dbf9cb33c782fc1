// A probed machine as a file that the simulator reads.
#pragma once
#include <string>
#include <vector>

#include "harness/probe.hpp"

namespace sluice {

// The text of a machine's file, read_machine() accepts it. `about`: lines of its head.
std::string machine_text(const Probed& probed, const std::vector<std::string>& about);

}  // namespace sluice
