#include "core/engine/slots.hpp"

#include "core/engine/figures.hpp"

namespace sluice {

SlotArena::SlotArena(IDevice& device, const Footprint& footprint,
                     const PerKind<std::uint32_t>& slots,
                     std::span<const std::uint64_t> head_bytes) {
  for (UnitKind kind : kStreamedKinds) add(device, kind, slots[kind], footprint.slot_bytes[kind]);
  first_head_ = static_cast<SlotId>(slots_.size());
  for (std::uint64_t bytes : head_bytes) add(device, UnitKind::head, 1, bytes);
}

void SlotArena::add(IDevice& device, UnitKind kind, std::uint32_t count, std::uint64_t bytes) {
  if (count == 0) return;
  const std::string what = fmt::format("{} {} slots", count, name_of(kind));
  memory_.emplace_back(device, Buffer::Where::device, count * bytes, what);
  for (std::uint32_t i = 0; i < count; ++i) {
    Slot& slot = slots_.emplace_back();
    slot.data = memory_.back().data() + i * bytes;
    slot.bytes = bytes;
    slot.kind = kind;
  }
}

}  // namespace sluice
