// Bytes and units as messages write them.
#pragma once
#include <fmt/format.h>

#include <string>

#include "sluice/unit.hpp"

namespace sluice {

inline std::string bytes_text(std::uint64_t bytes) {
  if (bytes >= 1ull << 30)
    return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(1ull << 30));
  if (bytes >= 1ull << 20)
    return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / static_cast<double>(1ull << 20));
  return fmt::format("{} bytes", bytes);
}

inline std::string unit_text(const UnitInfo& unit) {
  if (!is_streamed(unit.kind)) return std::string(name_of(unit.kind));
  if (unit.expert < 0) return fmt::format("{} of layer {}", name_of(unit.kind), unit.layer);
  return fmt::format("{} {} of layer {}", name_of(unit.kind), unit.expert, unit.layer);
}

}  // namespace sluice
