// How decisions are spelled in a log.
#pragma once
#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "sluice/policy.hpp"

namespace sluice {

inline constexpr std::array<std::string_view, 4> kAnswers{"accepted", "already", "no_slot",
                                                          "refused"};
inline constexpr std::array<std::string_view, 2> kPlaces{"device", "host"};

constexpr std::string_view name_of(Asked answer) {
  return kAnswers[static_cast<std::size_t>(answer)];
}
constexpr std::string_view name_of(Place place) { return kPlaces[static_cast<std::size_t>(place)]; }

inline std::string list_text(std::span<const UnitId> units) {
  return fmt::format("[{}]", fmt::join(units, ","));
}

}  // namespace sluice
