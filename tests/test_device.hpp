// The device that a test runs on where it names none; each executable is linked with one of them.
#pragma once
#include <memory>

#include "core/device/device.hpp"

namespace sluice::test {

std::unique_ptr<IDevice> make_test_device();

}  // namespace sluice::test
