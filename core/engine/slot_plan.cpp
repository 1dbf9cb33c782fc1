#include "core/engine/slot_plan.hpp"

#include <algorithm>

#include "core/engine/figures.hpp"
#include "core/error.hpp"

namespace sluice {
namespace {

std::vector<UnitId> kept_units(const ModelView& model, const Layout& layout,
                               bool keep_all_but_experts, std::string_view policy) {
  std::vector<bool> kept(model.units.size(), false);
  std::vector<UnitId> out;
  for (UnitId unit : layout.keep) {
    if (unit >= model.units.size())
      throw InputError("policy {}: its layout keeps unit {}; the model's units are 0 to {}", policy,
                       unit, model.units.size() - 1);
    if (!is_streamed(model.units[unit].kind))
      throw InputError(
          "policy {}: its layout keeps unit {}, the {}, which is not a policy's to move", policy,
          unit, name_of(model.units[unit].kind));
    if (kept[unit]) throw InputError("policy {}: its layout keeps unit {} twice", policy, unit);
    kept[unit] = true;
    out.push_back(unit);
  }
  if (keep_all_but_experts)
    for (const UnitInfo& unit : model.units)
      if (is_streamed(unit.kind) && unit.kind != UnitKind::expert && !kept[unit.id])
        out.push_back(unit.id);
  return out;
}

std::string slots_text(const PerKind<std::uint32_t>& slots) {
  std::string out;
  for (UnitKind kind : kStreamedKinds)
    if (slots[kind] != 0)
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", slots[kind], name_of(kind));
  return out.empty() ? "no" : out;
}

void check_fit(const SlotPlan& plan, const Footprint& footprint, const Budget& budget,
               std::string_view policy) {
  const PerKind<std::uint32_t> asked = plan.slots();
  if (budget.bytes == 0) {
    for (UnitKind kind : kStreamedKinds)
      if (asked[kind] > budget.slots[kind])
        throw InputError(
            "policy {}: the budget holds {} {} slots, its layout asks for {} ({} kept)", policy,
            budget.slots[kind], name_of(kind), asked[kind], plan.kept[kind]);
    return;
  }
  const std::uint64_t room = budget.bytes - footprint.staging_bytes;
  const std::uint64_t needed = footprint.bytes_of(asked);
  if (needed > room)
    throw InputError(
        "policy {}: the budget leaves {} for slots and holds {}; its layout asks for {}, which "
        "take {}",
        policy, bytes_text(room), slots_text(budget.slots), slots_text(asked), bytes_text(needed));
}

}  // namespace

SlotPlan plan_slots(const ModelView& model, const Footprint& footprint, const Budget& budget,
                    const Layout& layout, bool keep_all_but_experts, std::string_view policy) {
  SlotPlan plan{.keep = kept_units(model, layout, keep_all_but_experts, policy)};
  for (UnitId unit : plan.keep) ++plan.kept[model.units[unit].kind];
  for (UnitKind kind : {UnitKind::embedding, UnitKind::head})
    if (layout.rotating[kind] != 0)
      throw InputError(
          "policy {}: its layout asks for {} rotating {} slots; the {} does not rotate", policy,
          layout.rotating[kind], name_of(kind), name_of(kind));

  for (UnitKind kind : kStreamedKinds) {
    const std::uint32_t kept = plan.kept[kind], held = budget.slots[kind];
    const std::uint32_t moving = footprint.units[kind] - kept;
    const std::uint32_t left = held > kept ? held - kept : 0;
    const std::uint32_t wanted = layout.rotating[kind] != 0 ? layout.rotating[kind] : left;
    plan.rotating[kind] = std::min(wanted, moving);
    if (moving != 0 && plan.rotating[kind] == 0)
      throw InputError(
          "policy {}: the budget holds {} {} slots and its layout keeps {} of {} units; the other "
          "{} need at least 1 slot to rotate through",
          policy, held, name_of(kind), kept, footprint.units[kind], moving);
  }
  check_fit(plan, footprint, budget, policy);
  return plan;
}

}  // namespace sluice
