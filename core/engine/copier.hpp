// Fills slots over the copy lanes. Every edge between copies and compute is made here.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/device/device.hpp"
#include "core/engine/converter.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/id_lists.hpp"
#include "core/engine/setup.hpp"
#include "core/engine/slots.hpp"
#include "core/engine/staging_ring.hpp"

namespace sluice {

// The link is one FIFO: a copy can be overtaken only while it was not issued. So what is needed is
// issued at once, wishes of a hook right behind the needs of its step, and guesses wait here, a
// window of them on the device at a time.
class Copier {
 public:
  // `setup` has the lanes (0: copies go onto the compute stream), whether the host waits for each
  // load, and how large staging is. `weights` may hold slabs that are not pinned.
  Copier(IDevice& device, StreamId compute, const Setup& setup, const WeightStore& weights,
         const EngineOptions& options, SlotArena& slots);
  ~Copier();  // drains the lanes, then what converts, then the compute stream
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Names the slot's next load; nothing is issued yet.
  void prepare(SlotId slot, const Load& load);
  // Issues what is left of the slot's load. `needed`: the open step reads it.
  void issue(SlotId slot, bool needed);
  void queue_wish(SlotId slot);   // issued by flush_wishes(), in this order
  void queue_guess(SlotId slot);  // issued by top_up(), in this order
  bool is_queued_guess(SlotId slot) const { return queues_.list_of(slot) == kGuesses; }
  void flush_wishes();
  void top_up();
  // Forgets what was not issued of the slot's load; returns its bytes.
  std::uint64_t cancel(SlotId slot);

  void before_read(SlotId slot);  // the compute stream waits for `ready`
  void after_read(SlotId slot, Event last_reader) { slots_[slot].last_read = last_reader; }
  void poison(SlotId slot);  // fills it with NaN; only with EngineOptions::poison

  // The host waits for everything that was issued; every slot is at rest afterwards.
  void settle();

 private:
  enum Queue : std::uint32_t { kWishes, kGuesses, kQueues };
  struct Piece {
    Event copied;
    std::uint64_t bytes = 0;
  };

  void start(Slot& slot);
  std::uint64_t next_piece(const Slot& slot) const;
  void copy_piece(Slot& slot, std::uint64_t bytes);
  std::uint64_t next_of_guess(const Slot& slot) const;
  void copy_all(Slot& slot);
  void mark_ready(Slot& slot);
  void host_waits(Slot& slot);
  void order_after(StreamId stream, Event event);
  void retire_pieces();

  IDevice& device_;
  StreamId compute_;
  bool blocking_;
  std::uint64_t chunk_bytes_, window_bytes_;
  SlotArena& slots_;
  Buffer poison_;
  std::unique_ptr<StagingRing> ring_;     // null: every source is pinned
  std::unique_ptr<Converter> converter_;  // null: every unit stays as it crosses the link
  std::vector<StreamId> lanes_;           // the compute stream alone when there are none
  std::size_t turn_ = 0;                  // the next load's lane
  IdLists queues_;                        // of slots
  // Issued pieces of guesses, in order; those before first_piece_ have been reached.
  std::vector<Piece> pieces_;
  std::size_t first_piece_ = 0;
  std::uint64_t pieces_bytes_ = 0;
};

}  // namespace sluice
