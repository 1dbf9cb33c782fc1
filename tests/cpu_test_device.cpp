#include "core/device/cpu_device.hpp"
#include "tests/test_device.hpp"

namespace sluice::test {

std::unique_ptr<IDevice> make_test_device() { return make_cpu_device(); }

}  // namespace sluice::test
