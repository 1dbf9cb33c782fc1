#include "core/device/make_device.hpp"
#include "tests/test_device.hpp"

namespace sluice::test {

std::unique_ptr<IDevice> make_test_device() { return make_device({.kind = DeviceKind::cuda}); }

}  // namespace sluice::test
