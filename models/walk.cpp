#include "models/walk.hpp"

namespace sluice {

std::vector<UnitId> walked_by_all(const ModelView& view) {
  std::vector<UnitId> out;
  for (const UnitId unit : view.order)
    if (view.units[unit].kind != UnitKind::expert) out.push_back(unit);
  return out;
}

Walk::Walk(std::span<const UnitId> order) : size_(order.size()) {
  circle_.reserve(2 * size_);
  circle_.insert(circle_.end(), order.begin(), order.end());
  circle_.insert(circle_.end(), order.begin(), order.end());
}

Step Walk::step(std::size_t i, Phase phase, std::uint32_t tokens, bool last) {
  const std::span<const UnitId> circle(circle_);
  return {.index = next_index_++,
          .phase = phase,
          .tokens = tokens,
          .needs = circle.subspan(i, 1),
          .soon = circle.subspan(i + 1, last ? size_ - 1 - i : size_ - 1)};
}

Step Walk::experts(std::size_t i, Phase phase, std::uint32_t tokens, bool last,
                   std::span<const UnitId> needs, std::span<const UnitId> rest) {
  const auto behind = std::span<const UnitId>(circle_).subspan(i + 1, last ? size_ - 1 - i : size_);
  soon_.assign(rest.begin(), rest.end());
  soon_.insert(soon_.end(), behind.begin(), behind.end());
  return {.index = next_index_++, .phase = phase, .tokens = tokens, .needs = needs, .soon = soon_};
}

Step Walk::apart(std::span<const UnitId> needs, Phase phase) {
  return {.index = next_index_++, .phase = phase, .needs = needs};
}

Step Walk::head(const UnitId& head, Phase phase, std::uint32_t tokens, bool last) {
  return {.index = next_index_++,
          .phase = phase,
          .tokens = tokens,
          .needs = {&head, 1},
          .soon = std::span<const UnitId>(circle_).first(last ? 0 : size_)};
}

}  // namespace sluice
