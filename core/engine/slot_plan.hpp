// A policy's layout held against the budget: how many slots of each kind, and what lies in them for
// good.
#pragma once
#include <string_view>
#include <vector>

#include "core/engine/budget.hpp"

namespace sluice {

struct SlotPlan {
  std::vector<UnitId> keep;  // in the order in which they are loaded; the head is not among them
  PerKind<std::uint32_t> kept{}, rotating{};

  PerKind<std::uint32_t> slots() const {
    PerKind<std::uint32_t> sum;
    for (UnitKind kind : kStreamedKinds) sum[kind] = kept[kind] + rotating[kind];
    return sum;
  }
};

// Throws InputError, under the policy's name and with both figures, when the layout keeps what
// cannot be kept, asks for more than the budget holds, or leaves a kind that moves without a
// rotating slot. Rotating slots beyond the units that move are cut: they would stay empty.
// `keep_all_but_experts`: whatever the layout says, the other kinds stay (a budget of experts).
SlotPlan plan_slots(const ModelView& model, const Footprint& footprint, const Budget& budget,
                    const Layout& layout, bool keep_all_but_experts, std::string_view policy);

}  // namespace sluice
