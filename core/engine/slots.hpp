// Device memory for units: slots by kind, and the two marks of each.
#pragma once
#include <cstdint>
#include <vector>

#include "core/device/device.hpp"
#include "core/engine/budget.hpp"

namespace sluice {

using SlotId = std::uint32_t;
inline constexpr SlotId kNoSlot = ~SlotId{0};

// What is to be copied into a slot.
struct Load {
  UnitId unit = kNoUnit;
  Encoding wire = Encoding::native, resident = Encoding::native;
  const std::byte* source = nullptr;
  std::uint64_t bytes = 0;
  bool pinned = true;  // the source is; what is not passes through the ring

  bool converts() const { return wire != resident; }
};

struct Slot {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  UnitKind kind = UnitKind::attention;

  Event ready;       // after its last write
  Event last_read;   // after its last reader, on the compute stream
  bool seen = true;  // the compute stream is ordered after `ready`

  // The load that fills it, of which `issued` bytes are under way.
  Load load;
  std::uint64_t issued = 0;
  std::byte* to = nullptr;    // where they go: `data`, or staging
  StreamId lane = kHostLine;  // of its copies; chosen with the first
};

// One allocation per kind. Slots of streamed kinds lie side by side at multiples of kSlotAlignment
// and take exactly Footprint::bytes_of(); each head lies in a slot of its exact size behind them.
class SlotArena {
 public:
  // Throws MemoryLimitError.
  SlotArena(IDevice& device, const Footprint& footprint, const PerKind<std::uint32_t>& slots,
            std::span<const std::uint64_t> head_bytes);

  Slot& operator[](SlotId slot) { return slots_[slot]; }
  const Slot& operator[](SlotId slot) const { return slots_[slot]; }
  std::size_t size() const { return slots_.size(); }
  // The heads' slots are [first_head(), size()), in the order of their ids.
  SlotId first_head() const { return first_head_; }

 private:
  void add(IDevice& device, UnitKind kind, std::uint32_t count, std::uint64_t bytes);

  std::vector<Buffer> memory_;
  std::vector<Slot> slots_;
  SlotId first_head_ = 0;
};

}  // namespace sluice
