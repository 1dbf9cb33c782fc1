#include "models/walk.hpp"

namespace sluice {

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

Step Walk::head(const UnitId& head, Phase phase, std::uint32_t tokens, bool last) {
  return {.index = next_index_++,
          .phase = phase,
          .tokens = tokens,
          .needs = {&head, 1},
          .soon = std::span<const UnitId>(circle_).first(last ? 0 : size_)};
}

}  // namespace sluice
