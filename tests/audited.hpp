// The audit over a device, for tests in which no race may happen.
#pragma once
#include <memory>

#include "core/device/audit_device.hpp"
#include "tests/catch.hpp"

namespace sluice::test {

// Its end, after everything on it, is a test failure for each race that was found.
class Audited {
 public:
  explicit Audited(IDevice& below) : audit_(make_audit_device(below)) {}
  ~Audited() {
    for (const Race& race : audit_->races()) FAIL_CHECK(race.describe());
  }
  Audited(const Audited&) = delete;
  Audited& operator=(const Audited&) = delete;

  IDevice& device() { return *audit_; }

 private:
  std::unique_ptr<AuditDevice> audit_;
};

}  // namespace sluice::test
