// A machine for the simulator in which a byte of link or memory takes a nanosecond.
#pragma once
#include "core/device/machine.hpp"

namespace sluice::test {

inline Machine toy_machine() {
  return {.name = "toy",
          .device_memory_bytes = 64 << 20,
          .host_memory_bytes = 64 << 20,
          .h2d = {{{1, 1.0}}},
          .d2h = {{{1, 1.0}}},
          .memory_gbps = 4,
          .matrix_tflops = 0.001,
          .host_read_gbps = 1,
          .op_ns = 10,
          .copy_ns = 5,
          .enqueue_ns = 1,
          .event_ns = 1,
          .sync_ns = 3};
}

}  // namespace sluice::test
