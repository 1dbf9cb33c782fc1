// Measures the machine that it runs on, through the same device and kernels that a run uses, into
// figures for `sim`.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/device/device.hpp"
#include "core/device/machine.hpp"
#include "harness/host_reads.hpp"

namespace sluice {

struct Probed {
  Machine machine;
  std::vector<HostRead> host_reads;  // host memory by 1, 2, 4, ... and all threads
};

// `say` is told what is being measured. Takes some seconds, and memory on either side: 4 times the
// processor's last cache, a quarter of a gigabyte at least. Figures are those of the best of several tries,
// what the machine does undisturbed, or of the middle one where threads wait for each other or are in each
// other's way.
// Throws Error for a device that does not execute.
Probed probe(IDevice& device, std::string name, const std::function<void(const char*)>& say);

}  // namespace sluice
