#include "tests/plugin/fake_engine.hpp"

#include <algorithm>

namespace sluice::test {

void FakeModel::add(UnitKind kind, std::int32_t layer, std::uint64_t bytes, std::int32_t expert) {
  const auto id = static_cast<UnitId>(units.size());
  units.push_back({id, kind, layer, expert, {bytes, 0, 0}});
  if (is_streamed(kind)) order.push_back(id);
}

FakeModel dense_model(std::int32_t layers) {
  FakeModel model{.units = {}, .order = {}, .layers = layers};
  model.add(UnitKind::embedding, 0, 1000);
  for (std::int32_t i = 0; i < layers; ++i) {
    model.add(UnitKind::attention, i, kAttentionBytes);
    model.add(UnitKind::mlp, i, kMlpBytes);
  }
  model.add(UnitKind::head, layers, 1000);
  return model;
}

FakeModel expert_model(std::int32_t layers, std::int32_t experts, std::int32_t per_token) {
  FakeModel model{.units = {},
                  .order = {},
                  .layers = layers,
                  .experts = experts,
                  .experts_per_token = per_token};
  model.add(UnitKind::embedding, 0, 1000);
  for (std::int32_t i = 0; i < layers; ++i) {
    model.add(UnitKind::attention, i, kAttentionBytes);
    for (std::int32_t e = 0; e < experts; ++e) model.add(UnitKind::expert, i, kExpertBytes, e);
  }
  model.add(UnitKind::head, layers, 1000);
  return model;
}

Budget layer_budget(const FakeModel& model, std::uint32_t n) {
  const auto layers = std::min(n, static_cast<std::uint32_t>(model.layers));
  Budget budget;
  budget.slots[UnitKind::attention] = layers;
  if (model.experts == 0)
    budget.slots[UnitKind::mlp] = layers;
  else
    budget.slots[UnitKind::expert] = layers * static_cast<std::uint32_t>(model.experts);
  return budget;
}

FakeEngine::FakeEngine(const FakeModel& model, const Budget& budget, IOffloadPolicy& policy)
    : model_(model), policy_(policy), states_(model.units.size()) {
  layout_ = policy.layout(model.view(), budget);
  states_.back().kept = true;  // the head
  for (const UnitId unit : layout_.keep) {
    State& state = states_.at(unit);
    if (state.kept || !is_streamed(info(unit).kind)) throw std::logic_error("keeps what it cannot");
    state.kept = true;
    ++kept_[info(unit).kind];
  }
  for (const UnitKind kind : {UnitKind::attention, UnitKind::mlp, UnitKind::expert}) {
    if (kept_[kind] > budget.slots[kind]) throw std::logic_error("keeps more than the budget");
    slots_[kind] =
        layout_.rotating[kind] != 0 ? layout_.rotating[kind] : budget.slots[kind] - kept_[kind];
    if (kept_[kind] + slots_[kind] > budget.slots[kind])
      throw std::logic_error("rotates more than the budget");
    const auto units = static_cast<std::uint32_t>(
        std::count_if(model.units.begin(), model.units.end(),
                      [&](const UnitInfo& unit) { return unit.kind == kind; }));
    if (kept_[kind] < units && slots_[kind] == 0) throw std::logic_error("no slot is left to move");
  }
}

void FakeEngine::step(std::span<const UnitId> needs, std::span<const UnitId> soon) {
  soon_ = soon;
  std::vector<bool> had;
  for (const UnitId unit : needs) {
    states_[unit].open = true;
    had.push_back(has_slot(unit));
  }
  Step step;
  step.index = index_;
  step.needs = needs;
  step.soon = soon;
  policy_.before(step, *this);
  for (const UnitId unit : needs)
    if (!has_slot(unit)) load(unit);
  for (std::size_t i = 0; i < needs.size(); ++i) {
    had[i] ? ++tally_.hits : ++tally_.misses;
    State& state = states_[needs[i]];
    state.unread = false;
    state.use.last_use = index_;
    ++state.use.uses;
  }
  for (const UnitId unit : needs) {
    states_[unit].open = false;
    states_[unit].order = ++clock_;
  }
  ++index_;
}

std::vector<Tally> FakeEngine::generate(std::uint32_t passes) {
  std::vector<UnitId> walk;
  for (std::uint32_t i = 0; i < passes; ++i) {
    for (const UnitId unit : model_.order)
      if (info(unit).kind != UnitKind::expert) walk.push_back(unit);
    walk.push_back(model_.units.back().id);  // the head
  }
  const std::size_t length = walk.size() / std::max(passes, 1u);
  std::vector<Tally> out;
  for (std::size_t i = 0; i < walk.size(); ++i) {
    const Tally before = tally_;
    const std::span<const UnitId> rest = std::span<const UnitId>(walk).subspan(i + 1);
    step({&walk[i], 1}, rest.first(std::min(rest.size(), 2 * length)));
    if (i % length == 0) out.emplace_back();
    Tally& pass = out.back();
    pass.bytes += tally_.bytes - before.bytes;
    pass.loads += tally_.loads - before.loads;
    pass.hits += tally_.hits - before.hits;
    pass.misses += tally_.misses - before.misses;
    pass.wasted += tally_.wasted - before.wasted;
    pass.refused += tally_.refused - before.refused;
  }
  return out;
}

std::vector<UnitId> FakeEngine::resident() const {
  std::vector<UnitId> out;
  for (const UnitInfo& unit : model_.units)
    if (has_slot(unit.id)) out.push_back(unit.id);
  return out;
}

bool FakeEngine::load(UnitId unit) {
  const bool needed = states_[unit].open;
  offered_ = info(unit).kind;
  if (free_slots(offered_) == 0) {
    if (size() == 0) {
      if (needed) throw std::logic_error("a needed unit cannot have a slot");
      return false;
    }
    UnitId victim = policy_.victim(info(unit), *this);
    if (victim != kNoUnit && !is_candidate(victim)) {
      ++tally_.refused;
      victim = kNoUnit;
    }
    if (victim == kNoUnit && !needed) return false;
    evict(victim == kNoUnit ? oldest() : victim);
  }
  State& state = states_[unit];
  state.here = state.unread = true;
  state.order = ++clock_;
  state.use.loaded = state.use.last_use = index_;
  ++tally_.loads;
  tally_.bytes += info(unit).size(Encoding::native);
  return true;
}

void FakeEngine::evict(UnitId unit) {
  if (states_[unit].unread) ++tally_.wasted;
  states_[unit].here = false;
}

Asked FakeEngine::prefetch(UnitId unit) {
  if (unit >= states_.size() || info(unit).kind == UnitKind::embedding) {
    ++tally_.refused;
    return Asked::refused;
  }
  if (has_slot(unit)) return Asked::already;
  return load(unit) ? Asked::accepted : Asked::no_slot;
}

void FakeEngine::drop(UnitId unit) {
  if (unit >= states_.size() || states_[unit].kept || states_[unit].open)
    ++tally_.refused;
  else if (states_[unit].here)
    evict(unit);
}

bool FakeEngine::has_slot(UnitId unit) const {
  return unit < states_.size() && (states_[unit].kept || states_[unit].here);
}

bool FakeEngine::is_kept(UnitId unit) const { return unit < states_.size() && states_[unit].kept; }

std::uint32_t FakeEngine::used_slots(UnitKind kind) const {
  std::uint32_t used = 0;
  for (const UnitInfo& unit : model_.units)
    used += unit.kind == kind && states_[unit.id].here ? 1 : 0;
  return used;
}

std::uint32_t FakeEngine::free_slots(UnitKind kind) const {
  return slots_[kind] - used_slots(kind);
}

bool FakeEngine::is_candidate(UnitId unit) const {
  return unit < states_.size() && info(unit).kind == offered_ && states_[unit].here &&
         !states_[unit].open;
}

std::size_t FakeEngine::size() const {
  return static_cast<std::size_t>(
      std::count_if(model_.units.begin(), model_.units.end(),
                    [&](const UnitInfo& unit) { return is_candidate(unit.id); }));
}

// The candidate that is next in order of use, of one layer or (-1) of any.
UnitId FakeEngine::next_after(std::uint64_t order, std::int32_t layer) const {
  UnitId best = kNoUnit;
  for (const UnitInfo& unit : model_.units)
    if (is_candidate(unit.id) && states_[unit.id].order > order &&
        (layer < 0 || unit.layer == layer) &&
        (best == kNoUnit || states_[unit.id].order < states_[best].order))
      best = unit.id;
  return best;
}

UnitId FakeEngine::oldest() const { return next_after(0, -1); }
UnitId FakeEngine::newer(UnitId than) const { return next_after(states_.at(than).order, -1); }
UnitId FakeEngine::oldest_in(std::int32_t layer) const { return next_after(0, layer); }
UnitId FakeEngine::newer_in_layer(UnitId than) const {
  return next_after(states_.at(than).order, info(than).layer);
}

std::uint64_t FakeEngine::next_in(UnitId unit) const {
  const auto found = std::find(soon_.begin(), soon_.end(), unit);
  return found == soon_.end() ? kNever : static_cast<std::uint64_t>(found - soon_.begin()) + 1;
}

}  // namespace sluice::test
