// From what an experiment allows to slots of each kind.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <variant>

#include "sluice/policy.hpp"

namespace sluice {

struct LayerBudget {
  std::uint32_t layers = 0;  // N slots of each kind that makes up a layer; at least 1
};
struct ByteBudget {
  std::uint64_t bytes = 0;  // slots, staging and the head together
};
struct ExpertBudget {
  std::uint32_t slots = 0;  // experts cached; every other unit is kept; at least 1
};
struct AutoBudget {
  std::uint64_t free_bytes = 0;  // what the memory limit leaves after context and workspace
};
using BudgetSpec = std::variant<LayerBudget, ByteBudget, ExpertBudget, AutoBudget>;

using TransferOf = std::function<Transfer(const UnitInfo&)>;

inline constexpr std::array kStreamedKinds{UnitKind::attention, UnitKind::mlp, UnitKind::expert};

// Slots begin at multiples of this, so that kernels see the same alignment in each of them.
inline constexpr std::uint64_t kSlotAlignment = 256;

// What a model's units take on the device.
struct Footprint {
  PerKind<std::uint32_t> units;      // of the streamed kinds
  PerKind<std::uint32_t> per_layer;  // slots that one layer of a layer budget stands for
  PerKind<std::uint64_t>
      slot_bytes;                // the kind's largest resident slab, rounded up to the alignment
  std::uint64_t head_bytes = 0;  // exact
  std::uint64_t staging_bytes = 0;

  std::uint64_t bytes_of(const PerKind<std::uint32_t>& slots) const {
    std::uint64_t sum = 0;
    for (UnitKind kind : kStreamedKinds) sum += slots[kind] * slot_bytes[kind];
    return sum;
  }
  // The slots that a budget of `layers` gives: never more than there are units.
  PerKind<std::uint32_t> slots_for(std::uint32_t layers) const;
};

// Throws InputError, naming unit and encoding, where a unit is not stored as `transfer` asks. The
// embedding is not asked about: it never moves.
Footprint footprint_of(const ModelView& model, const TransferOf& transfer);

// The layer budget that `slots` amount to: the most layers that they hold.
std::uint32_t layers_in(const ModelView& model, const Footprint& footprint,
                        const PerKind<std::uint32_t>& slots);

// Staging for units whose wire and resident encodings differ: two buffers of the largest such unit's
// wire size, each rounded up to the alignment.
std::uint64_t staging_bytes(const ModelView& model, const TransferOf& transfer);

// Throws InputError when not even one slot of each kind fits, with the figures and the smallest
// budget that would. A layer budget beyond the model's layers is cut to them, expert slots beyond
// its experts likewise. Bytes give the most whole layers that fit; where experts are so many that
// not one layer fits, one slot of each other kind and as many experts as fit beside them. Auto is the
// layer budget of as many layers as its bytes hold, or those bytes where they hold less than one.
Budget resolve_budget(const ModelView& model, const BudgetSpec& spec, const TransferOf& transfer);

}  // namespace sluice
