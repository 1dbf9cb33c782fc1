#include "core/engine/budget.hpp"

#include <algorithm>

#include "core/engine/figures.hpp"
#include "core/error.hpp"
#include "core/round_up.hpp"

namespace sluice {
namespace {

std::uint64_t stored_size(const UnitInfo& unit, Encoding encoding) {
  if (unit.size(encoding) != 0) return unit.size(encoding);
  std::string stored;
  for (std::size_t e = 0; e < kEncodings; ++e)
    if (unit.bytes[e] != 0)
      stored += (stored.empty() ? "" : ", ") + std::string(name_of(static_cast<Encoding>(e)));
  throw InputError("the {} (unit {}) is not stored as {}; it is there as {}", unit_text(unit),
                   unit.id, name_of(encoding), stored.empty() ? "nothing" : stored);
}

Budget in_layers(const ModelView& model, const Footprint& footprint, std::uint32_t layers) {
  if (layers == 0)
    throw InputError("gpu_layer_budget is 0; it must be at least 1, and {} holds this whole model",
                     model.layers);
  return {.slots = footprint.slots_for(layers)};
}

Budget in_experts(const Footprint& footprint, std::uint32_t experts) {
  const std::uint32_t all = footprint.units[UnitKind::expert];
  if (all == 0)
    throw InputError("expert_slots is {}, but this model has no experts; use gpu_layer_budget",
                     experts);
  if (experts == 0)
    throw InputError("expert_slots is 0; it must be at least 1, and {} holds all experts", all);
  Budget budget{.slots = footprint.units};
  budget.slots[UnitKind::expert] = std::min(experts, all);
  return budget;
}

// `what` has the bytes, for errors.
Budget in_bytes(const ModelView& model, const Footprint& footprint, std::uint64_t bytes,
                const std::string& what) {
  PerKind<std::uint32_t> one;
  for (UnitKind kind : kStreamedKinds) one[kind] = std::min(footprint.units[kind], 1u);
  const std::uint64_t fixed = footprint.head_bytes + footprint.staging_bytes;
  const std::uint64_t least = fixed + footprint.bytes_of(one);
  if (bytes < least)
    throw InputError(
        "{} does not hold the head ({}), staging ({}) and one slot of each kind ({}); the smallest "
        "that does is {} bytes",
        what, bytes_text(footprint.head_bytes), bytes_text(footprint.staging_bytes),
        bytes_text(footprint.bytes_of(one)), least);

  Budget budget{.slots = one, .bytes = bytes - footprint.head_bytes};
  auto layers = static_cast<std::uint32_t>(model.layers);
  while (layers > 0 && fixed + footprint.bytes_of(footprint.slots_for(layers)) > bytes) --layers;
  if (layers > 0) {
    budget.slots = footprint.slots_for(layers);
  } else if (const std::uint64_t expert = footprint.slot_bytes[UnitKind::expert]) {
    const std::uint64_t more = (bytes - least) / expert;
    const std::uint32_t others = footprint.units[UnitKind::expert] - 1;
    budget.slots[UnitKind::expert] +=
        static_cast<std::uint32_t>(std::min<std::uint64_t>(more, others));
  }
  return budget;
}

}  // namespace

PerKind<std::uint32_t> Footprint::slots_for(std::uint32_t layers) const {
  PerKind<std::uint32_t> slots;
  for (UnitKind kind : kStreamedKinds) {
    const std::uint64_t wanted = std::uint64_t{layers} * per_layer[kind];
    slots[kind] = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, units[kind]));
  }
  return slots;
}

std::uint32_t layers_in(const ModelView& model, const Footprint& footprint,
                        const PerKind<std::uint32_t>& slots) {
  const auto fit = [&](std::uint32_t layers) {
    const PerKind<std::uint32_t> needed = footprint.slots_for(layers);
    return std::ranges::all_of(kStreamedKinds,
                               [&](UnitKind kind) { return needed[kind] <= slots[kind]; });
  };
  auto layers = static_cast<std::uint32_t>(model.layers);
  while (layers > 0 && !fit(layers)) --layers;
  return layers;
}

Footprint footprint_of(const ModelView& model, const TransferOf& transfer) {
  Footprint out;
  std::uint64_t staged = 0;
  for (const UnitInfo& unit : model.units) {
    if (unit.kind == UnitKind::embedding) continue;
    const Transfer how = transfer(unit);
    const std::uint64_t wire = stored_size(unit, how.wire);
    const std::uint64_t resident = stored_size(unit, how.resident);
    if (how.wire != how.resident) staged = std::max(staged, wire);
    if (unit.kind == UnitKind::head) {
      out.head_bytes += resident;
      continue;
    }
    ++out.units[unit.kind];
    std::uint64_t& slot = out.slot_bytes[unit.kind];
    slot = std::max(slot, round_up(resident, kSlotAlignment));
  }
  out.staging_bytes = 2 * round_up(staged, kSlotAlignment);
  for (UnitKind kind : kStreamedKinds)
    out.per_layer[kind] =
        kind == UnitKind::expert ? static_cast<std::uint32_t>(model.experts_per_layer) : 1;
  return out;
}

std::uint64_t staging_bytes(const ModelView& model, const TransferOf& transfer) {
  return footprint_of(model, transfer).staging_bytes;
}

Budget resolve_budget(const ModelView& model, const BudgetSpec& spec, const TransferOf& transfer) {
  const Footprint footprint = footprint_of(model, transfer);
  if (const auto* layers = std::get_if<LayerBudget>(&spec))
    return in_layers(model, footprint, layers->layers);
  if (const auto* experts = std::get_if<ExpertBudget>(&spec))
    return in_experts(footprint, experts->slots);
  if (const auto* bytes = std::get_if<ByteBudget>(&spec))
    return in_bytes(model, footprint, bytes->bytes,
                    fmt::format("the budget of {}", bytes_text(bytes->bytes)));
  const std::uint64_t free = std::get<AutoBudget>(spec).free_bytes;
  Budget most = in_bytes(model, footprint, free,
                         fmt::format("what the memory limit leaves, {},", bytes_text(free)));
  if (layers_in(model, footprint, most.slots) > 0) most.bytes = 0;
  return most;
}

}  // namespace sluice
