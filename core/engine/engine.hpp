// Carries out a policy's wishes: the only code that owns slots, staging, copy lanes and the waits
// between copies and compute.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/device/device.hpp"
#include "core/engine/budget.hpp"
#include "core/engine/counters.hpp"
#include "core/engine/decisions.hpp"
#include "core/engine/layer_provider.hpp"
#include "core/engine/staging_ring.hpp"
#include "core/weights/weight_store.hpp"

namespace sluice {

struct EngineOptions {
  std::uint64_t chunk_bytes = 8ull << 20;          // a copy is issued in pieces of this size
  std::uint64_t guess_window_bytes = 32ull << 20;  // guesses on the device at a time; 0: a guess
                                                   // waits until it is certain
                                                   // Of the ring for weights that are not pinned.
  std::uint64_t staging_half_bytes = StagingRing::kHalfBytes;

  bool poison = false;  // tests: an evicted slot is filled with NaN before it is used again
  DecisionSink* decisions = nullptr;  // is told every decision; must outlive the engine
};

// What the engine set up, for records and messages. The bytes together are what the engine has
// allocated on the device.
struct EngineShape {
  Budget budget;
  std::uint32_t layers = 0;               // whole ones that the budget's slots hold
  PerKind<std::uint32_t> kept, rotating;  // slots of the streamed kinds
  std::uint32_t lanes = 0;
  std::uint64_t slot_bytes = 0;  // of all of those: each the kind's Footprint::slot_bytes
  std::uint64_t staging_bytes = 0;
  std::uint64_t head_bytes = 0;    // exact; the head is always kept and in no slot of a kind
  std::vector<std::string> notes;  // Layout::notes
};

class Engine final : public ILayerProvider {
 public:
  // Asks the policy for its transfers and its layout, refuses what cannot work (InputError with the
  // figures; MemoryLimitError with what would fit), allocates, and loads the head and what is kept;
  // returns when that has arrived. `policy_name` appears in errors. Everything passed by reference
  // must outlive the engine.
  Engine(IDevice& device, StreamId compute, const WeightStore& weights, IOffloadPolicy& policy,
         std::string policy_name, const BudgetSpec& budget, EngineOptions options = {});
  ~Engine() override;  // drains the lanes and the compute stream before memory is freed
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // A step that names what is not there, names it twice, needs more units of a kind than rotate, or
  // comes out of order is an Error and changes nothing. Any other exception, a policy's among them,
  // ends the run: every later call throws it again.
  Lease acquire(const Step& step) override;
  std::uint32_t wanted_guesses(const Step& step) override;
  void routed(std::span<const UnitId> units) override;
  std::optional<Weights> kept(UnitId unit) const override;
  std::uint32_t capacity(UnitKind kind) const override;
  bool is_fixed() const override;

  const Counters& counters() const override;
  const EngineShape& shape() const;

 private:
  Weights use(const Step& step, std::size_t i) override;
  void close(const Step& step) noexcept override;
  bool was_here(const Step& step, std::size_t i) const override;

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
