// Opens a device by kind.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "core/device/device.hpp"
#include "core/device/machine.hpp"

namespace sluice {

struct DeviceSpec {
  DeviceKind kind = DeviceKind::cpu;
  std::optional<std::uint64_t> memory_limit{};  // bytes; none: what the hardware has
  std::optional<double> link_gbps{};            // cpu only: copies are slowed down to this rate
  std::optional<Machine> machine{};             // sim only, and needed there: what it imitates
};

// Throws InputError where this build or this machine has no such device, saying what it has.
std::unique_ptr<IDevice> make_device(const DeviceSpec& spec);

}  // namespace sluice
