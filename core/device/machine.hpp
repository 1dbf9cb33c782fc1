// A machine's measured figures: what the simulator needs to say how long an operation takes there.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

// A rate that depends on the size of the piece: copies in small chunks do not fill the link.
// Between two points the time is interpolated linearly in the size; beyond the last, its rate holds.
struct RateCurve {
  struct Point {
    std::uint64_t bytes = 0;
    double gbps = 0;  // 1e9 bytes a second
  };
  std::vector<Point> points;  // ascending in bytes; at least one

  double ns(std::uint64_t bytes) const;
  double peak_gbps() const { return points.back().gbps; }
};

struct Machine {
  std::string name;
  std::uint64_t device_memory_bytes = 0;
  std::uint64_t host_memory_bytes = 0;
  RateCurve h2d, d2h;            // pinned host memory
  double memory_gbps = 0;        // device memory, read + written
  double matrix_tflops = 0;      // dense bf16 products with f32 sums
  double host_read_gbps = 0;     // the CPU's own path to its memory, all cores
  std::uint64_t op_ns = 0;       // a kernel's fixed cost on its stream
  std::uint64_t copy_ns = 0;     // a copy's fixed cost on the link, beyond the curve
  std::uint64_t enqueue_ns = 0;  // the host's cost of an operation
  std::uint64_t event_ns = 0;    // ... of recording or waiting for an event
  std::uint64_t sync_ns = 0;     // ... of waking up after a wait on the host
  double link_limit_gbps = 0;    // a link slowed down on purpose, in each direction; 0: it is not
  // The part of its rate that one keeps while the other works too; 1: they do not share cores or memory.
  double compute_beside_h2d = 1, h2d_beside_compute = 1;

  // What large copies to the device reach.
  double link_gbps() const {
    return link_limit_gbps == 0 ? h2d.peak_gbps() : std::min(h2d.peak_gbps(), link_limit_gbps);
  }
};

}  // namespace sluice
