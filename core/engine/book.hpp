// The engine's book: which unit lies in which slot, which slots are free, and which units may be
// evicted, oldest use first. Knows nothing of copies.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/id_lists.hpp"
#include "core/engine/slots.hpp"
#include "core/engine/soon_index.hpp"
#include "sluice/policy.hpp"

namespace sluice {

class Book {
 public:
  // Every slot but the heads' begins free.
  Book(std::span<const UnitInfo> units, SlotArena& slots);

  bool knows(UnitId unit) const { return unit < units_.size(); }
  const UnitInfo& info(UnitId unit) const { return infos_[unit]; }
  bool has_slot(UnitId unit) const { return units_[unit].slot != kNoSlot; }
  SlotId slot_of(UnitId unit) const { return units_[unit].slot; }
  bool is_kept(UnitId unit) const { return units_[unit].kept; }
  bool is_open(UnitId unit) const { return units_[unit].open; }  // of the open step
  // Since it came into its slot; what is kept was awaited there.
  bool was_read(UnitId unit) const { return has_slot(unit) && !units_[unit].unread; }
  UnitUse use(UnitId unit) const { return units_[unit].use; }

  SlotId free_slot(UnitKind kind) const { return free_.first(index(kind)); }  // kNoSlot: none
  std::uint32_t free_slots(UnitKind kind) const { return free_.size(index(kind)); }
  std::uint32_t candidates(UnitKind kind) const { return by_kind_.size(index(kind)); }
  UnitId oldest(UnitKind kind) const { return by_kind_.first(index(kind)); }  // kNoUnit: none

  void keep_head(UnitId unit, SlotId slot);
  // Takes the first free slot of the unit's kind, which must be there.
  SlotId keep(UnitId unit);
  SlotId place(UnitId unit, std::uint64_t step);
  // Frees its slot; true when the unit was never read since its load.
  bool evict(UnitId unit);

  void open(UnitId unit);  // may not be evicted, wherever it is
  void read(UnitId unit, std::uint64_t step);
  void close(UnitId unit);  // must have a slot; becomes the newest candidate

 private:
  friend class CandidateView;

  struct Unit {
    SlotId slot = kNoSlot;
    bool kept = false, open = false, unread = false;
    UnitUse use;
  };

  static constexpr std::size_t index(UnitKind kind) { return static_cast<std::size_t>(kind); }
  std::size_t layer_index(UnitKind kind, std::int32_t layer) const {
    return index(kind) * layers_ + static_cast<std::size_t>(layer);
  }
  SlotId take_free(UnitId unit);
  void list(UnitId unit);
  void unlist(UnitId unit);

  std::span<const UnitInfo> infos_;
  std::size_t layers_;
  std::vector<Unit> units_;
  IdLists free_;                // slots, a list per kind
  IdLists by_kind_, by_layer_;  // candidates, a list per kind, and per kind and layer
};

// What victim() is offered.
class CandidateView final : public Candidates {
 public:
  CandidateView(const Book& book, SoonIndex& soon) : book_(book), soon_(soon) {}
  void show(UnitKind kind) { kind_ = kind; }

  std::size_t size() const override { return book_.candidates(kind_); }
  UnitId oldest() const override { return book_.oldest(kind_); }
  UnitId newer(UnitId than) const override;
  UnitId oldest_in(std::int32_t layer) const override;
  UnitId newer_in_layer(UnitId than) const override;
  bool contains(UnitId unit) const override;
  // These throw Error for an id that is not a unit.
  const UnitInfo& info(UnitId unit) const override;
  UnitUse use(UnitId unit) const override;
  std::uint64_t next_in(UnitId unit) const override { return soon_.place_of(unit); }

 private:
  const Book& book_;
  SoonIndex& soon_;
  UnitKind kind_ = UnitKind::attention;
};

}  // namespace sluice
