#include "core/engine/book.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace sluice {
namespace {

std::size_t layers_of(std::span<const UnitInfo> units) {
  std::int32_t last = 0;
  for (const UnitInfo& unit : units) last = std::max(last, unit.layer);
  return static_cast<std::size_t>(last) + 1;
}

}  // namespace

static_assert(IdLists::kNone == kNoUnit && IdLists::kNone == kNoSlot);

Book::Book(std::span<const UnitInfo> units, SlotArena& slots)
    : infos_(units),
      layers_(layers_of(units)),
      units_(units.size()),
      free_(slots.size(), kUnitKinds),
      by_kind_(units.size(), kUnitKinds),
      by_layer_(units.size(), kUnitKinds * layers_) {
  for (SlotId slot = 0; slot < slots.first_head(); ++slot)
    free_.push_back(index(slots[slot].kind), slot);
}

void Book::keep_head(UnitId unit, SlotId slot) {
  units_[unit].slot = slot;
  units_[unit].kept = true;
}

SlotId Book::keep(UnitId unit) {
  units_[unit].kept = true;
  return take_free(unit);
}

SlotId Book::place(UnitId unit, std::uint64_t step) {
  const SlotId slot = take_free(unit);
  Unit& u = units_[unit];
  u.unread = true;
  u.use.loaded = u.use.last_use = step;
  if (!u.open) list(unit);
  return slot;
}

bool Book::evict(UnitId unit) {
  Unit& u = units_[unit];
  unlist(unit);
  free_.push_back(index(info(unit).kind), u.slot);
  u.slot = kNoSlot;
  return u.unread;
}

void Book::open(UnitId unit) {
  units_[unit].open = true;
  if (has_slot(unit) && !is_kept(unit)) unlist(unit);
}

void Book::read(UnitId unit, std::uint64_t step) {
  Unit& u = units_[unit];
  u.unread = false;
  u.use.last_use = step;
  ++u.use.uses;
}

void Book::close(UnitId unit) {
  units_[unit].open = false;
  if (!is_kept(unit)) list(unit);
}

SlotId Book::take_free(UnitId unit) {
  const SlotId slot = free_slot(info(unit).kind);
  free_.remove(slot);
  units_[unit].slot = slot;
  return slot;
}

void Book::list(UnitId unit) {
  by_kind_.push_back(index(info(unit).kind), unit);
  by_layer_.push_back(layer_index(info(unit).kind, info(unit).layer), unit);
}

void Book::unlist(UnitId unit) {
  by_kind_.remove(unit);
  by_layer_.remove(unit);
}

UnitId CandidateView::newer(UnitId than) const {
  return contains(than) ? book_.by_kind_.next(than) : kNoUnit;
}

UnitId CandidateView::oldest_in(std::int32_t layer) const {
  if (layer < 0 || static_cast<std::size_t>(layer) >= book_.layers_) return kNoUnit;
  return book_.by_layer_.first(book_.layer_index(kind_, layer));
}

UnitId CandidateView::newer_in_layer(UnitId than) const {
  return contains(than) ? book_.by_layer_.next(than) : kNoUnit;
}

bool CandidateView::contains(UnitId unit) const {
  return book_.knows(unit) && book_.by_kind_.list_of(unit) == Book::index(kind_);
}

const UnitInfo& CandidateView::info(UnitId unit) const {
  if (!book_.knows(unit)) throw Error("unit {} is not one of the model's", unit);
  return book_.info(unit);
}

UnitUse CandidateView::use(UnitId unit) const { return book_.use(info(unit).id); }

}  // namespace sluice
