// A book over a policy's decisions: no copies, no device, and nothing of the engine's code, so that
// both can be checked against each other and against figures worked out by hand.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "sluice/policy.hpp"

namespace sluice::test {

// A model's units and walk, kept together.
struct FakeModel {
  std::vector<UnitInfo> units;
  std::vector<UnitId> order;
  std::int32_t layers = 0, experts = 0, experts_per_token = 0;

  ModelView view() const { return {units, order, layers, experts, experts_per_token}; }
  void add(UnitKind kind, std::int32_t layer, std::uint64_t bytes, std::int32_t expert = -1);
};

inline constexpr std::uint64_t kAttentionBytes = 100, kMlpBytes = 300, kExpertBytes = 40;
inline constexpr std::uint64_t kLayerBytes = kAttentionBytes + kMlpBytes;

FakeModel dense_model(std::int32_t layers);
FakeModel expert_model(std::int32_t layers, std::int32_t experts, std::int32_t per_token);

// `gpu_layer_budget: n` for this model.
Budget layer_budget(const FakeModel& model, std::uint32_t n);

struct Tally {
  std::uint64_t bytes = 0;  // loaded into rotating slots
  std::uint64_t loads = 0, hits = 0, misses = 0, wasted = 0, refused = 0;
};

// Throws std::logic_error when a layout cannot work or a hook breaks the rules that this book
// enforces; counts what the engine would refuse.
class FakeEngine final : Actions, Candidates {
 public:
  FakeEngine(const FakeModel& model, const Budget& budget, IOffloadPolicy& policy);

  // One step, ending with its reads.
  void step(std::span<const UnitId> needs, std::span<const UnitId> soon);
  // A generation: `passes` walks over the dense units and the head, `soon` reaching two walks ahead
  // but not past the end. Returns the tally of each walk.
  std::vector<Tally> generate(std::uint32_t passes);

  const Tally& tally() const { return tally_; }
  std::vector<UnitId> resident() const;  // ascending
  const Layout& layout() const { return layout_; }
  std::uint32_t rotating(UnitKind kind) const { return slots_[kind]; }
  std::uint32_t kept(UnitKind kind) const { return kept_[kind]; }

 private:
  struct State {
    bool kept = false, here = false, open = false, unread = false;
    std::uint64_t order = 0;  // of its last load or read: the smallest is the oldest
    UnitUse use;
  };

  bool load(UnitId unit);
  void evict(UnitId unit);
  bool is_candidate(UnitId unit) const;
  UnitId next_after(std::uint64_t order, std::int32_t layer) const;
  std::uint32_t used_slots(UnitKind kind) const;

  // Actions
  Asked prefetch(UnitId unit) override;
  void drop(UnitId unit) override;
  bool has_slot(UnitId unit) const override;
  bool is_kept(UnitId unit) const override;
  std::uint32_t rotating_slots(UnitKind kind) const override { return slots_[kind]; }
  std::uint32_t free_slots(UnitKind kind) const override;
  // Candidates
  std::size_t size() const override;
  UnitId oldest() const override;
  UnitId newer(UnitId than) const override;
  UnitId oldest_in(std::int32_t layer) const override;
  UnitId newer_in_layer(UnitId than) const override;
  bool contains(UnitId unit) const override { return is_candidate(unit); }
  const UnitInfo& info(UnitId unit) const override { return model_.units.at(unit); }
  UnitUse use(UnitId unit) const override { return states_.at(unit).use; }
  std::uint64_t next_in(UnitId unit) const override;

  const FakeModel& model_;
  IOffloadPolicy& policy_;
  Layout layout_;
  PerKind<std::uint32_t> slots_, kept_;
  std::vector<State> states_;
  std::span<const UnitId> soon_;
  UnitKind offered_ = UnitKind::attention;
  std::uint64_t clock_ = 0, index_ = 0;
  Tally tally_;
};

}  // namespace sluice::test
