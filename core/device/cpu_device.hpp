// The machine's own processor as a device. A stream is a thread that works off a queue; device
// memory is host memory under a limit; a link, where one is given, slows the copies down to its
// rate. A missing wait is a data race here, which ThreadSanitizer sees.
#pragma once
#include <memory>
#include <optional>

#include "core/device/device.hpp"

namespace sluice {

struct CpuDeviceOptions {
  // Bytes that may be allocated; none: all memory of the machine. More than the machine has is an
  // InputError: this device has no memory of its own that could back it.
  std::optional<std::uint64_t> memory_limit{};
  // 1e9 bytes a second for each direction, shared by the copies of all streams in the order in
  // which they reach the link; none: as fast as memory is.
  std::optional<double> link_gbps{};
};

// Throws InputError for a limit or a rate that cannot be.
//
// When a body throws, everything enqueued on any stream before the host learns of it is skipped;
// what is enqueued after runs. Exceptions that nobody waited for end with the device.
std::unique_ptr<IDevice> make_cpu_device(const CpuDeviceOptions& options = {});

}  // namespace sluice
