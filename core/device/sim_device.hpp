// A machine that is not here: streams in virtual time over FIFO resources. Nothing is executed and
// memory is addresses only, so hours of a large model take seconds, and the same run always takes
// the same virtual time.
#pragma once
#include <memory>
#include <optional>

#include "core/device/device.hpp"
#include "core/device/machine.hpp"

namespace sluice {

// How long each resource was busy since the device was made, for saying what bounds a run.
struct BusyTimes {
  std::uint64_t h2d_ns = 0, d2h_ns = 0, compute_ns = 0, host_ns = 0;
};

// An operation takes its fixed cost + max(bytes / bandwidth, flops / rate); a copy takes what the
// link's curve says for its size. Each resource serves one operation at a time, in the order in which
// they become ready. The host's own enqueueing and waking take time too.
class SimDevice : public IDevice {
 public:
  virtual BusyTimes busy() = 0;
};

std::unique_ptr<SimDevice> make_sim_device(const Machine& machine,
                                           std::optional<std::uint64_t> memory_limit = {});

}  // namespace sluice
