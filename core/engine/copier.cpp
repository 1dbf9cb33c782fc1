#include "core/engine/copier.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/device/drain.hpp"
#include "core/error.hpp"

namespace sluice {
namespace {

constexpr int kNaNByte = 0xFF;  // all ones are a NaN in f32, bf16 and f16

std::uint64_t checked_chunk(std::uint64_t bytes) {
  if (bytes == 0) throw InputError("the engine's chunk_bytes is 0; it must be at least 1");
  return bytes;
}

}  // namespace

Copier::Copier(IDevice& device, StreamId compute, const Setup& setup, const WeightStore& weights,
               const EngineOptions& options, SlotArena& slots)
    : device_(device),
      compute_(compute),
      blocking_(setup.layout.blocking),
      chunk_bytes_(checked_chunk(options.chunk_bytes)),
      window_bytes_(options.guess_window_bytes),
      slots_(slots),
      queues_(slots.size(), kQueues) {
  for (std::uint32_t i = 0; i < setup.layout.lanes; ++i)
    lanes_.push_back(device.make_stream(Resource::h2d, "copy"));
  if (lanes_.empty()) lanes_.push_back(compute);
  if (weights.unpinned_bytes() != 0)
    ring_ = std::make_unique<StagingRing>(device, options.staging_half_bytes);
  if (setup.footprint.staging_bytes != 0)
    converter_ =
        std::make_unique<Converter>(device, weights.layout(), setup.footprint.staging_bytes / 2);
  if (!options.poison) return;
  std::uint64_t largest = 0;
  for (SlotId slot = 0; slot < slots.size(); ++slot) largest = std::max(largest, slots[slot].bytes);
  if (largest == 0) return;
  poison_ = Buffer(device, Buffer::Where::pinned, std::min(largest, chunk_bytes_), "poison");
  if (device.info().executes) std::memset(poison_.data(), kNaNByte, poison_.bytes());
}

Copier::~Copier() {
  for (StreamId lane : lanes_) drain_quietly(device_, lane);
  converter_.reset();
  drain_quietly(device_, compute_);
}

void Copier::prepare(SlotId id, const Load& load) {
  Slot& slot = slots_[id];
  slot.load = load;
  slot.issued = 0;
}

void Copier::issue(SlotId id, bool needed) {
  Slot& slot = slots_[id];
  if (slot.issued < slot.load.bytes) {
    if (slot.issued == 0) start(slot);
    copy_all(slot);
    mark_ready(slot);
    // Ahead of the host's own wait, so that a blocking load shows as a stall, too.
    if (blocking_ && needed) before_read(id);
    if (blocking_) host_waits(slot);
  }
  if (queues_.list_of(id) != IdLists::kNone) queues_.remove(id);
}

void Copier::queue_wish(SlotId slot) {
  if (queues_.list_of(slot) != IdLists::kNone) queues_.remove(slot);
  queues_.push_back(kWishes, slot);
}

void Copier::queue_guess(SlotId slot) { queues_.push_back(kGuesses, slot); }

void Copier::flush_wishes() {
  while (queues_.size(kWishes) != 0) issue(queues_.first(kWishes), false);
}

void Copier::top_up() {
  if (queues_.size(kGuesses) == 0) return;
  retire_pieces();
  while (queues_.size(kGuesses) != 0) {
    const SlotId id = queues_.first(kGuesses);
    Slot& slot = slots_[id];
    const std::uint64_t bytes = next_of_guess(slot);
    if (bytes == 0 || pieces_bytes_ + bytes > window_bytes_) return;
    if (slot.issued == 0) start(slot);
    slot.load.converts() ? copy_all(slot) : copy_piece(slot, bytes);
    mark_ready(slot);
    pieces_.push_back({slot.ready, bytes});
    pieces_bytes_ += bytes;
    if (blocking_) {
      host_waits(slot);
      retire_pieces();
    }
    if (slot.issued == slot.load.bytes) queues_.remove(id);
  }
}

std::uint64_t Copier::cancel(SlotId id) {
  if (queues_.list_of(id) == IdLists::kNone) return 0;
  queues_.remove(id);
  return slots_[id].load.bytes - slots_[id].issued;
}

void Copier::before_read(SlotId id) {
  Slot& slot = slots_[id];
  if (slot.seen) return;
  device_.wait(compute_, slot.ready, WaitFor::weights);
  slot.seen = true;
}

void Copier::poison(SlotId id) {
  Slot& slot = slots_[id];
  prepare(id, {});
  slot.lane = lanes_.front();
  order_after(slot.lane, slot.ready);
  order_after(slot.lane, slot.last_read);
  for (std::uint64_t at = 0; at < slot.bytes; at += poison_.bytes()) {
    const std::uint64_t bytes = std::min(poison_.bytes(), slot.bytes - at);
    const std::array reads{range_of(poison_.data(), bytes)};
    const std::array writes{range_of(slot.data + at, bytes)};
    device_.copy(
        slot.lane,
        {.name = "poison", .on = Resource::h2d, .bytes = bytes, .reads = reads, .writes = writes},
        slot.data + at, poison_.data(), bytes);
  }
  mark_ready(slot);
}

void Copier::settle() {
  for (StreamId lane : lanes_) device_.sync(device_.record(lane));
  if (converter_) device_.sync(device_.record(converter_->stream()));
  device_.sync(device_.record(compute_));
  for (SlotId id = 0; id < slots_.size(); ++id) {
    slots_[id].ready = slots_[id].last_read = {};
    slots_[id].seen = true;
  }
}

// What lands in staging does not touch the slot: there the conversion waits, not the lane.
void Copier::start(Slot& slot) {
  slot.lane = lanes_[turn_++ % lanes_.size()];
  if (slot.load.converts()) {
    slot.to = converter_->take(slot.lane);
    return;
  }
  slot.to = slot.data;
  order_after(slot.lane, slot.ready);
  order_after(slot.lane, slot.last_read);
}

std::uint64_t Copier::next_piece(const Slot& slot) const {
  const std::uint64_t left = std::min(chunk_bytes_, slot.load.bytes - slot.issued);
  return slot.load.pinned ? left : std::min(left, ring_->half_bytes());
}

// What passes through staging is issued whole, since a unit that is needed before the rest of it could
// not get past it, and counts as no more than the window, so that it fits into an empty one.
std::uint64_t Copier::next_of_guess(const Slot& slot) const {
  return std::min(window_bytes_, slot.load.converts() ? slot.load.bytes : next_piece(slot));
}

void Copier::copy_all(Slot& slot) {
  while (slot.issued < slot.load.bytes) copy_piece(slot, next_piece(slot));
}

void Copier::copy_piece(Slot& slot, std::uint64_t bytes) {
  const Load& load = slot.load;
  const std::byte* from = load.source + slot.issued;
  if (!load.pinned) from = ring_->fill(slot.lane, load.unit, from, bytes);
  std::byte* to = slot.to + slot.issued;
  const std::array reads{range_of(from, bytes)};
  const std::array writes{range_of(to, bytes)};
  device_.copy(slot.lane,
               {.name = "load",
                .unit = load.unit,
                .on = Resource::h2d,
                .bytes = bytes,
                .reads = reads,
                .writes = writes},
               to, from, bytes);
  if (!load.pinned) ring_->read_on(slot.lane);
  slot.issued += bytes;
}

void Copier::mark_ready(Slot& slot) {
  if (slot.load.converts()) {
    slot.ready = converter_->convert(slot.lane, slot.load.unit, slot.load.wire, slot.data,
                                     {slot.ready, slot.last_read});
    slot.seen = false;
    return;
  }
  slot.ready = device_.record(slot.lane);
  slot.seen = slot.lane == compute_;
}

void Copier::host_waits(Slot& slot) {
  device_.sync(slot.ready);
  slot.seen = true;
}

// What lies on one stream is in order already.
void Copier::order_after(StreamId stream, Event event) {
  if (event.stream != stream && event.position != 0) device_.wait(stream, event);
}

void Copier::retire_pieces() {
  while (first_piece_ < pieces_.size() && device_.reached(pieces_[first_piece_].copied))
    pieces_bytes_ -= pieces_[first_piece_++].bytes;
  if (2 * first_piece_ < pieces_.size()) return;
  pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_piece_));
  first_piece_ = 0;
}

}  // namespace sluice
