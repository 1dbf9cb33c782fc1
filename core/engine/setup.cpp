#include "core/engine/setup.hpp"

#include "core/engine/figures.hpp"
#include "core/error.hpp"

namespace sluice {
namespace {

constexpr std::uint32_t kMaxLanes = 16;

std::vector<Transfer> ask_transfers(const ModelView& model, GuardedPolicy& policy) {
  std::vector<Transfer> out(model.units.size());
  for (const UnitInfo& unit : model.units)
    if (unit.kind != UnitKind::embedding) out[unit.id] = policy.transfer(model, unit);
  return out;
}

void refuse_conversions(const ModelView& model, const std::vector<Transfer>& transfers,
                        const std::string& policy) {
  for (const UnitInfo& unit : model.units)
    if (const auto [wire, resident] = transfers[unit.id];
        wire != resident && resident != Encoding::native)
      throw Error(
          "policy {}: the {} would cross the link as {} and lie on the device as {}; there is no "
          "conversion between the two",
          policy, unit_text(unit), name_of(wire), name_of(resident));
}

Layout ask_layout(const ModelView& model, GuardedPolicy& policy, const Budget& budget) {
  Layout layout = policy.layout(model, budget);
  if (layout.lanes > kMaxLanes)
    throw InputError("policy {}: its layout asks for {} copy lanes; there may be 0 to {}",
                     policy.name(), layout.lanes, kMaxLanes);
  return layout;
}

}  // namespace

Setup set_up(const ModelView& model, GuardedPolicy& policy, const BudgetSpec& budget) {
  Setup out;
  out.transfers = ask_transfers(model, policy);
  const TransferOf transfer = [&](const UnitInfo& unit) { return out.transfers[unit.id]; };
  out.footprint = footprint_of(model, transfer);
  refuse_conversions(model, out.transfers, policy.name());
  out.shape.budget = resolve_budget(model, budget, transfer);
  out.shape.layers = layers_in(model, out.footprint, out.shape.budget.slots);

  out.layout = ask_layout(model, policy, out.shape.budget);
  out.plan = plan_slots(model, out.footprint, out.shape.budget, out.layout,
                        std::holds_alternative<ExpertBudget>(budget), policy.name());
  out.shape.kept = out.plan.kept;
  out.shape.rotating = out.plan.rotating;
  out.shape.lanes = out.layout.lanes;
  out.shape.slot_bytes = out.footprint.bytes_of(out.plan.slots());
  out.shape.staging_bytes = out.footprint.staging_bytes;
  out.shape.head_bytes = out.footprint.head_bytes;
  out.shape.notes = out.layout.notes;
  return out;
}

SlotArena allocate_slots(IDevice& device, const ModelView& model, const Setup& setup) {
  std::vector<std::uint64_t> heads;
  for (const UnitInfo& unit : model.units)
    if (unit.kind == UnitKind::head) heads.push_back(unit.size(setup.transfers[unit.id].resident));
  const std::uint64_t free = free_bytes(device);
  try {
    return {device, setup.footprint, setup.plan.slots(), heads};
  } catch (const MemoryLimitError& e) {
    const std::uint64_t limit = device.info().memory_limit;
    const auto needed_for = [&](std::uint32_t layers) {
      return setup.footprint.head_bytes + setup.footprint.staging_bytes +
             setup.footprint.bytes_of(setup.footprint.slots_for(layers));
    };
    auto layers = static_cast<std::uint32_t>(model.layers);
    while (layers > 0 && needed_for(layers) > free) --layers;
    throw MemoryLimitError(
        "{}. The head ({}) and the slots ({}) do not fit beside the {} in use under the limit of "
        "{}: {}",
        e.what(), bytes_text(setup.shape.head_bytes), bytes_text(setup.shape.slot_bytes),
        bytes_text(limit - free), bytes_text(limit),
        layers > 0 ? fmt::format("a gpu_layer_budget of {} would", layers)
                   : fmt::format("a gpu_layer_budget of 1 takes {} bytes", needed_for(1)));
  }
}

}  // namespace sluice
