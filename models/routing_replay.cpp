#include "models/routing_replay.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "models/expert_groups.hpp"
#include "models/foresight.hpp"

namespace sluice {

RoutingReplay::RoutingReplay(const ModelView& view, const RoutingShape& shape)
    : view_(view),
      per_token_(static_cast<std::size_t>(shape.per_token)),
      first_experts_(first_experts(view)),
      routers_(attention_units(view)),
      walk_(walked_by_all(view)) {
  if (shape.layers != view.layers || shape.experts != view.experts_per_layer)
    throw InputError("the routing is of {} layers of {} experts; the model has {} of {}",
                     shape.layers, shape.experts, view.layers, view.experts_per_layer);
  for (const UnitInfo& unit : view.units)
    if (unit.kind == UnitKind::head) head_ = unit.id;
}

UnitId RoutingReplay::first_expert(const RoutedLayer& layer) const {
  const UnitId first = first_experts_[static_cast<std::size_t>(layer.layer)];
  if (first == kNoUnit)
    throw InputError("the routing has experts of layer {}; the model has none there", layer.layer);
  return first;
}

std::vector<UnitId> RoutingReplay::experts_of(const RoutedLayer& layer) const {
  const UnitId first = first_expert(layer);
  std::vector<UnitId> units;
  for (const std::int32_t id : layer.ids) units.push_back(first + static_cast<UnitId>(id));
  if (layer.ids.size() == per_token_) return units;
  std::ranges::sort(units);
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units;
}

std::vector<UnitId> RoutingReplay::guesses_at(const RoutedLayer& layer,
                                              std::uint32_t wanted) const {
  const UnitId first = first_expert(layer);
  const std::size_t count = std::min<std::size_t>(wanted, per_token_);
  std::vector<std::int32_t> ids;
  for (std::size_t token = 0; token < layer.ids.size(); token += per_token_)
    for (std::size_t rank = 0; rank < count; ++rank) ids.push_back(layer.ids[token + rank]);
  std::vector<UnitId> units;
  for (const std::int32_t id : best_of_all_rows(ids, count))
    units.push_back(first + static_cast<UnitId>(id));
  return units;
}

Counters RoutingReplay::pass(ILayerProvider& provider, const RoutedPass& pass, bool last) {
  const Counters before = provider.counters();
  Counters experts;
  const auto take = [&](const Step& step) {
    Lease lease = provider.acquire(step);
    for (std::size_t i = 0; i < step.needs.size(); ++i) lease.use(i);
  };
  std::uint32_t tokens = 1;
  if (!pass.layers.empty())
    tokens = static_cast<std::uint32_t>(pass.layers.front().ids.size() / per_token_);
  auto routed = pass.layers.begin();
  for (std::size_t i = 0; i < walk_.size(); ++i) {
    const Step step = walk_.step(i, pass.phase, tokens, last);
    const UnitInfo& unit = view_.units[step.needs[0]];
    take(step);
    if (unit.kind != UnitKind::attention || routed == pass.layers.end() ||
        routed->layer != unit.layer)
      continue;
    const std::vector<UnitId> all = experts_of(*routed++);
    const bool may_guess =
        pass.phase == Phase::decode && routed != pass.layers.end() && !provider.is_fixed();
    const std::uint32_t wanted = may_guess ? provider.wanted_guesses(step) : 0;
    const std::size_t most =
        experts_of_a_step(pass.phase, all.size(), provider.capacity(UnitKind::expert));
    for (std::size_t first = 0; first < all.size(); first += most) {
      const std::size_t count = std::min(most, all.size() - first);
      const std::span<const UnitId> needs(all.data() + first, count);
      const Counters then = provider.counters();
      take(
          walk_.experts(i, pass.phase, tokens, last, needs, std::span(all).subspan(first + count)));
      const Counters changed = provider.counters() - then;
      experts.hits += changed.hits;
      experts.misses += changed.misses;
      needed_.push_back({pass.phase, {needs.begin(), needs.end()}});
    }
    if (wanted == 0 || !provider.kept(routers_[static_cast<std::size_t>(routed->layer)])) continue;
    provider.routed(guesses_at(*routed, wanted));
    has_guessed_ = true;
  }
  take(walk_.head(head_, pass.phase, tokens, last));
  Counters changed = provider.counters() - before;
  changed.hits = experts.hits;
  changed.misses = experts.misses;
  return changed;
}

}  // namespace sluice
