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

// `say` is told what is being measured. Takes some seconds, and up to half a gigabyte of memory on
// either side. Figures are those of the best of several tries: what the machine does undisturbed.
// Throws Error for a device that does not execute.
Probed probe(IDevice& device, std::string name, const std::function<void(const char*)>& say);

}  // namespace sluice
