// A cache of experts over the slots that rotate. What is common to such policies is here: whose slot
// is whose, what a prefill may take, and the other kinds of units, which move as in the ring. Which
// expert goes is the rule of the policy that derives from it.
#pragma once
#include <algorithm>
#include <set>
#include <utility>

#include "sluice/ring.hpp"

namespace sluice {

inline constexpr ParamSpec kExpertScope{
    "scope", ParamType::text,
    0,       0,
    0,       "who shares slots: all layers (global), or each has its part of them (layer)",
    "layer", "global|layer"};
inline constexpr ParamSpec kExpertEncoding{
    "encoding", ParamType::text, 0, 0, 0, "of experts, on the link and in their slots",
    "bf16",     "bf16|int8|int4"};
inline constexpr ParamSpec kExpertPrefill{"prefill",
                                          ParamType::text,
                                          0,
                                          0,
                                          0,
                                          "whether a prefill passes through a few slots and leaves "
                                          "the others as they are (bypass), or is "
                                          "treated as decoding is (share)",
                                          "bypass",
                                          "bypass|share"};
inline constexpr ParamSpec kExpertPrefillSlots{"prefill_slots",
                                               ParamType::integer,
                                               16,
                                               1,
                                               1e6,
                                               "of a prefill that bypasses: how many slots it "
                                               "passes through; what it reads comes eight experts "
                                               "at a time, and the next eight arrive meanwhile"};

// An expert belongs to a pool: the whole model, or its layer. Pools share the slots evenly, the first
// ones getting what remains. A pool at its share gives up one of its own; one below takes a slot from
// the pool that is furthest beyond.
//
// What a bypassing prefill loads belongs to no pool. It takes slots that are free, or up to
// `prefill_slots` from the pools, and from then on its own; decoding takes those back first.
class ExpertCache : public RingPolicy {
 public:
  // `params` has the four above.
  explicit ExpertCache(const Params& params) : ExpertCache(params, params.text("scope")) {}

  Layout layout(const ModelView& model, const Budget& budget) override {
    Layout out = RingPolicy::layout(model, budget);
    units_.assign(model.units.begin(), model.units.end());
    const std::vector<UnitId> experts = units_of(model, UnitKind::expert);
    std::uint32_t slots = budget.slots[UnitKind::expert];
    if (slots < experts.size()) {
      const std::vector<UnitId> pinned = pin(model, slots);
      out.keep.insert(out.keep.end(), pinned.begin(), pinned.end());
      slots -= static_cast<std::uint32_t>(pinned.size());
    }
    divide(experts, static_cast<std::size_t>(model.layers), slots);
    return out;
  }

  Transfer transfer(const ModelView&, const UnitInfo& unit) const override {
    return unit.kind == UnitKind::expert ? Transfer{encoding_, encoding_} : Transfer{};
  }

  void before(const Step& step, Actions& actions) override {
    passing_ = bypasses_ && step.phase == Phase::prefill;
    if (!passing_ && !step.needs.empty() && is_expert(step.needs.front()))
      ++visits_[layer_of(step.needs.front())];
    for (const UnitId unit : step.needs) need(unit, actions);
    wish_for(step.soon, actions);
  }

  UnitId victim(const UnitInfo& incoming, const Candidates& candidates) override {
    if (incoming.kind != UnitKind::expert) return RingPolicy::victim(incoming, candidates);
    const UnitId unit = choose(pool_of(incoming.id), candidates);
    if (unit == kNoUnit || !may_go(unit, candidates)) return kNoUnit;
    leave(unit);
    return unit;
  }

 protected:
  ExpertCache(const Params& params, std::string_view scope)
      : RingPolicy(1, 1),
        layered_(scope == "layer"),
        bypasses_(params.text("prefill") == "bypass"),
        prefill_slots_(static_cast<std::size_t>(params.integer("prefill_slots"))) {
    if (params.text("encoding") != "bf16")
      encoding_ = params.text("encoding") == "int8" ? Encoding::int8 : Encoding::int4;
  }

  // Experts to keep for good, out of `slots` that are fewer than the experts; one must be left.
  virtual std::vector<UnitId> pin(const ModelView& model, std::uint32_t slots) {
    static_cast<void>(model);
    static_cast<void>(slots);
    return {};
  }
  // The rule. Which of the pool's experts goes, out of those that may_go(); kNoUnit where there is none.
  // By default the least recently used.
  virtual UnitId worst(std::size_t pool, const Candidates& candidates) {
    UnitId unit = layered_ ? candidates.oldest_in(layers_[pool]) : candidates.oldest();
    while (unit != kNoUnit && !may_go(unit, candidates))
      unit = layered_ ? candidates.newer_in_layer(unit) : candidates.newer(unit);
    return unit;
  }
  // A wish takes no slot of what is needed before it, a guess none of what is guessed beside it.
  bool may_go(UnitId unit, const Candidates& candidates) const {
    return candidates.contains(unit) && candidates.next_in(unit) > place_ &&
           std::find(guesses_.begin(), guesses_.end(), unit) == guesses_.end();
  }
  // Of what a rule wants to know, prefills that bypass left out: an expert was needed (`hit`: it was
  // there), has joined its pool, has left it. A miss is used() before it has entered().
  virtual void used(UnitId unit, bool hit) {
    static_cast<void>(unit);
    static_cast<void>(hit);
  }
  virtual void entered(UnitId unit) { static_cast<void>(unit); }
  virtual void left(UnitId unit) { static_cast<void>(unit); }

  // Wishes for experts that no step has named; `brought` is called for each that was not there.
  template <typename F>
  void guess(std::span<const UnitId> units, Actions& actions, const F& brought) {
    passing_ = false;
    guesses_ = units;
    for (const UnitId unit : units) {
      if (!is_expert(unit) || actions.prefetch(unit) != Asked::accepted) continue;
      enter(unit);
      brought(unit);
    }
    guesses_ = {};
  }

  bool is_layered() const { return layered_; }
  std::size_t unit_count() const { return units_.size(); }
  bool is_expert(UnitId unit) const { return units_[unit].kind == UnitKind::expert; }
  std::size_t layer_of(UnitId unit) const { return static_cast<std::size_t>(units_[unit].layer); }
  // How often the router of the unit's layer has chosen.
  std::uint64_t visits(UnitId unit) const { return visits_[layer_of(unit)]; }
  std::size_t pools() const { return share_.size(); }
  std::size_t pool_of(UnitId unit) const { return layered_ ? pool_of_layer_[layer_of(unit)] : 0; }
  std::uint32_t share(std::size_t pool) const { return share_[pool]; }
  std::size_t expert_layers() const { return layers_.size(); }

 private:
  void divide(const std::vector<UnitId>& experts, std::size_t layers, std::uint32_t slots) {
    layers_.clear();
    pool_of_layer_.assign(layers, 0);
    for (const UnitId unit : experts) {
      if (!layers_.empty() && layers_.back() == units_[unit].layer) continue;
      pool_of_layer_[layer_of(unit)] = layers_.size();
      layers_.push_back(units_[unit].layer);
    }
    const std::size_t count = layered_ ? std::max<std::size_t>(layers_.size(), 1) : 1;
    share_.assign(count, static_cast<std::uint32_t>(slots / count));
    for (std::size_t pool = 0; pool < slots % count; ++pool) ++share_[pool];
    held_.assign(count, 0);
    visits_.assign(layers, 0);
    passed_at_.assign(units_.size(), 0);
    prefill_slots_ = std::min<std::size_t>(prefill_slots_, slots);
  }

  void need(UnitId unit, Actions& actions) {
    const bool hit = actions.has_slot(unit);
    actions.prefetch(unit);
    if (!is_expert(unit) || actions.is_kept(unit)) return;
    if (passing_) {
      if (!hit) pass(unit);
      return;
    }
    used(unit, hit);
    if (hit && passed_at_[unit] == 0) return;
    if (hit) passed_.erase({std::exchange(passed_at_[unit], 0), unit});
    enter(unit);
  }

  void wish_for(std::span<const UnitId> soon, Actions& actions) {
    std::array<bool, kUnitKinds> done{};
    const auto is_done = [&](UnitKind kind) -> bool& {
      return done[static_cast<std::size_t>(kind)];
    };
    for (const UnitKind kind : {UnitKind::attention, UnitKind::mlp, UnitKind::expert})
      is_done(kind) = actions.rotating_slots(kind) == 0;
    for (const UnitId unit : soon) {
      ++place_;
      const UnitKind kind = units_[unit].kind;
      // Experts of later layers are not known.
      if (kind != UnitKind::expert) is_done(UnitKind::expert) = true;
      if (is_done(UnitKind::attention) && is_done(UnitKind::mlp) && is_done(UnitKind::expert))
        break;
      if (is_done(kind)) continue;
      const Asked answer = actions.prefetch(unit);
      if (answer == Asked::no_slot) is_done(kind) = true;
      if (answer == Asked::accepted && kind == UnitKind::expert)
        passing_ ? pass(unit) : enter(unit);
    }
    place_ = 0;
  }

  void pass(UnitId unit) {
    passed_at_[unit] = ++passes_;
    passed_.insert({passes_, unit});
  }
  void enter(UnitId unit) {
    ++held_[pool_of(unit)];
    entered(unit);
  }
  void leave(UnitId unit) {
    if (passed_at_[unit] != 0) {
      passed_.erase({std::exchange(passed_at_[unit], 0), unit});
      return;
    }
    --held_[pool_of(unit)];
    left(unit);
  }

  UnitId choose(std::size_t pool, const Candidates& candidates) {
    UnitId unit = kNoUnit;
    if (!passing_ || passed_.size() >= prefill_slots_) unit = first_passed(candidates);
    if (unit != kNoUnit || (passing_ && place_ != 0 && passed_.size() >= prefill_slots_))
      return unit;
    if (!passing_ && held_[pool] >= share_[pool]) unit = worst(pool, candidates);
    if (unit == kNoUnit) unit = worst_of_fullest(pool, candidates);
    return unit != kNoUnit ? unit : candidates.oldest();
  }

  // What a prefill has loaded first, and nobody is about to need.
  UnitId first_passed(const Candidates& candidates) const {
    for (const auto& [since, unit] : passed_)
      if (may_go(unit, candidates)) return unit;
    return kNoUnit;
  }

  // Among equals the pool that comes round again last.
  UnitId worst_of_fullest(std::size_t pool, const Candidates& candidates) {
    const auto excess = [&](std::size_t i) {
      return static_cast<std::int64_t>(held_[i]) - static_cast<std::int64_t>(share_[i]);
    };
    std::size_t fullest = pool;
    bool found = false;
    for (std::size_t back = 1; back <= pools(); ++back) {
      const std::size_t i = (pool + pools() - back) % pools();
      if (held_[i] == 0 || (found && excess(i) <= excess(fullest))) continue;
      if (layered_ && candidates.oldest_in(layers_[i]) == kNoUnit) continue;
      fullest = i;
      found = true;
    }
    return found ? worst(fullest, candidates) : kNoUnit;
  }

  bool layered_, bypasses_;
  std::size_t prefill_slots_;
  Encoding encoding_ = Encoding::native;

  std::vector<UnitInfo> units_;
  std::vector<std::int32_t> layers_;         // that have experts, ascending
  std::vector<std::size_t> pool_of_layer_;   // index: layer
  std::vector<std::uint32_t> share_, held_;  // index: pool
  std::vector<std::uint64_t> visits_;        // index: layer

  std::span<const UnitId> guesses_;  // at hand
  bool passing_ = false;             // the step is of a prefill that bypasses
  // What such prefills have loaded, oldest first.
  std::set<std::pair<std::uint64_t, UnitId>> passed_;
  std::vector<std::uint64_t> passed_at_;  // index: UnitId; 0: it is not among them
  std::uint64_t passes_ = 0;
};

}  // namespace sluice
