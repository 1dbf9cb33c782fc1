// A machine that is not here: streams in virtual time over FIFO resources. Nothing is executed and
// memory is addresses only, so hours of a large model take seconds, and the same run always takes
// the same virtual time.
#pragma once
#include <memory>
#include <optional>

#include "core/device/device.hpp"
#include "core/device/machine.hpp"

namespace sluice {

// How long each resource has worked since the device was made, up to now, for saying what bounds a
// run. `line_ns`: the host's own line of execution, which enqueues and wakes up.
struct BusyTimes {
  std::uint64_t h2d_ns = 0, d2h_ns = 0, compute_ns = 0, host_ns = 0, line_ns = 0;

  constexpr BusyTimes& operator+=(const BusyTimes& other) {
    h2d_ns += other.h2d_ns;
    d2h_ns += other.d2h_ns;
    compute_ns += other.compute_ns;
    host_ns += other.host_ns;
    line_ns += other.line_ns;
    return *this;
  }
  friend constexpr BusyTimes operator-(const BusyTimes& a, const BusyTimes& b) {
    return {a.h2d_ns - b.h2d_ns, a.d2h_ns - b.d2h_ns, a.compute_ns - b.compute_ns,
            a.host_ns - b.host_ns, a.line_ns - b.line_ns};
  }
};

// An operation takes its parts' fixed costs + max(bytes / bandwidth, flops / rate); a copy takes what the
// link's curve says for its size; while one of each runs, both take longer by what the machine says of
// them. A copy over a link that is slowed down rests until that lets it end. Each resource serves one
// operation at a time, in the order in which they become ready. The host's own enqueueing and waking
// take time too.
class SimDevice : public IDevice {
 public:
  virtual BusyTimes busy() = 0;
};

// Throws InputError for a limit of 0, or of more than the machine has. No two such devices of a
// process give out the same addresses: weights pinned by one are read by another.
std::unique_ptr<SimDevice> make_sim_device(const Machine& machine,
                                           std::optional<std::uint64_t> memory_limit = {});

}  // namespace sluice
