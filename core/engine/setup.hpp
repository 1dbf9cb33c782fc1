// What a policy and a budget amount to, worked out before anything is allocated.
#pragma once
#include <vector>

#include "core/engine/engine.hpp"
#include "core/engine/guarded_policy.hpp"
#include "core/engine/slot_plan.hpp"
#include "core/engine/slots.hpp"

namespace sluice {

struct Setup {
  std::vector<Transfer> transfers;  // index: UnitId; of the embedding: unused
  Footprint footprint;
  SlotPlan plan;
  EngineShape shape;
  Layout layout;  // as the policy gave it
};

// Asks the policy for its transfers and its layout. Throws InputError for a budget, an encoding or a
// layout that cannot work, Error for a conversion that the engine does not have.
Setup set_up(const ModelView& model, GuardedPolicy& policy, const BudgetSpec& budget);

// Throws MemoryLimitError, saying what would fit.
SlotArena allocate_slots(IDevice& device, const ModelView& model, const Setup& setup);

}  // namespace sluice
