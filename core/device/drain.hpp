// Waiting in a destructor.
#pragma once
#include "core/device/device.hpp"

namespace sluice {

// Waits for everything on `stream`, and throws nothing: whoever waited before has been told of what
// went wrong, and memory must be given back all the same.
inline void drain_quietly(IDevice& device, StreamId stream) noexcept {
  try {
    device.sync(device.record(stream));
  } catch (...) {  // see above
  }
}

}  // namespace sluice
