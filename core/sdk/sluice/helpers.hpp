// What most policies would otherwise write again.
#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "sluice/plugin.hpp"

namespace sluice {

// For a policy without parameters.
inline constexpr std::array<ParamSpec, 0> kNoParams{};

// The units of one kind, in the order in which a token walks them.
inline std::vector<UnitId> units_of(const ModelView& model, UnitKind kind) {
  std::vector<UnitId> out;
  for (const UnitInfo& unit : model.units)
    if (unit.kind == kind) out.push_back(unit.id);
  return out;
}

// `count` of the numbers 0..total-1, ascending and as evenly spread as can be: what streams between
// what stays gives the link time to bring the next.
inline std::vector<std::size_t> spread_evenly(std::size_t count, std::size_t total) {
  std::vector<std::size_t> picked;
  count = std::min(count, total);
  for (std::size_t i = 0; i < total; ++i)
    if ((i + 1) * count / total != i * count / total) picked.push_back(i);
  return picked;
}

}  // namespace sluice
