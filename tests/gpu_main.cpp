// main() of the tests that need a GPU: where there is none they are reported as skipped, never as
// passed.
#define CATCH_CONFIG_RUNNER
#include <cstdio>
#include <string_view>

#include "core/device/make_device.hpp"
#include "tests/catch.hpp"

int main(int count, char* arguments[]) {
  bool lists = false;
  for (int i = 1; i < count; ++i)
    lists = lists || std::string_view(arguments[i]).substr(0, 6) == "--list";
  if (!lists) {
    try {
      sluice::make_device({.kind = sluice::DeviceKind::cuda});
    } catch (const sluice::InputError& none) {
      std::printf("SKIPPED: %s\n", none.what());
      return 0;
    }
  }
  return Catch::Session().run(count, arguments);
}
