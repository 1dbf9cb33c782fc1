// In which steps a pass acquires the experts of a layer: the decoder and what replays it agree on this.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "sluice/policy.hpp"

namespace sluice {

// Experts of a step of a prefill, at most: they are read one after the other, so that more would only
// hold slots that the ones behind them could be brought to.
inline constexpr std::uint32_t kPrefillGroup = 8;

// How many of `count` experts one step takes where `capacity` slots rotate. All, while decoding, if
// they fit; else half of the slots, so that the next ones arrive in the others.
inline std::size_t experts_of_a_step(Phase phase, std::size_t count, std::uint32_t capacity) {
  const std::uint32_t half = std::max(1u, capacity / 2);
  if (phase == Phase::prefill) return std::min(half, kPrefillGroup);
  return count <= capacity ? count : half;
}

// By layer; kNoUnit: it has no experts.
inline std::vector<UnitId> first_experts(const ModelView& view) {
  std::vector<UnitId> out(static_cast<std::size_t>(view.layers), kNoUnit);
  for (const UnitInfo& unit : view.units)
    if (unit.kind == UnitKind::expert && unit.expert == 0)
      out[static_cast<std::size_t>(unit.layer)] = unit.id;
  return out;
}

// By layer: the unit that has its router, if there is one.
inline std::vector<UnitId> attention_units(const ModelView& view) {
  std::vector<UnitId> out(static_cast<std::size_t>(view.layers), kNoUnit);
  for (const UnitInfo& unit : view.units)
    if (unit.kind == UnitKind::attention) out[static_cast<std::size_t>(unit.layer)] = unit.id;
  return out;
}

}  // namespace sluice
