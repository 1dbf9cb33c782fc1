// Finds accesses that nothing orders, over any device. Vector clocks follow what streams, events and
// the host order; timing plays no part, so a race is found that did not bite.
//
// Vector clocks: Mattern, "Virtual Time and Global States of Distributed Systems", 1989.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/device/device.hpp"

namespace sluice {

struct Race {
  enum class Kind : std::uint8_t { read_after_write, write_after_read, write_after_write, freed };

  Kind kind = Kind::read_after_write;
  std::string earlier, later;  // operation, unit and stream; of `freed`: `later` is the release
  Range range;                 // the bytes of both, of the first such pair

  std::string describe() const;
};

// Forwards everything to the device below and watches it on the way.
class AuditDevice : public IDevice {
 public:
  // Each pair of operation names is reported once per kind, in the order found.
  virtual const std::vector<Race>& races() const = 0;
};

// `below` must outlive it.
std::unique_ptr<AuditDevice> make_audit_device(IDevice& below);

}  // namespace sluice
