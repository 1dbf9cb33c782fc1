#include "models/synthetic_routing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "core/weights/hash.hpp"
#include "models/ops/philox.hpp"

namespace sluice {
namespace {

std::uint64_t chained(std::uint64_t hash, std::uint64_t more) { return mix(hash + kGolden + more); }

std::vector<double> cumulated(std::size_t count, auto weight) {
  std::vector<double> out(count);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) out[i] = sum += weight(i);
  return out;
}

// The place that `uniform`, in [0, 1), falls on among the first `count`.
std::size_t place_in(const std::vector<double>& cumulated, std::size_t count, double uniform) {
  const auto end = cumulated.begin() + static_cast<std::ptrdiff_t>(count);
  const auto found = std::upper_bound(cumulated.begin(), end, uniform * *(end - 1));
  return std::min(static_cast<std::size_t>(found - cumulated.begin()), count - 1);
}

}  // namespace

SyntheticRouting::SyntheticRouting(std::int32_t layers, std::int32_t experts,
                                   const SyntheticRoutingParams& params)
    : experts_(experts), params_(params) {
  const auto is_probability = [](double p) { return p >= 0 && p <= 1; };
  if (!is_probability(params.stickiness) || !is_probability(params.recency) ||
      !is_probability(params.foresight) || !(params.zipf >= 0))
    throw Error(
        "routing of zipf {}, stickiness {}, recency {}, foresight {}: the first is not from 0 on, "
        "or one of the others not from 0 to 1",
        params.zipf, params.stickiness, params.recency, params.foresight);
  const auto count = static_cast<std::size_t>(experts);
  popularity_ = cumulated(
      count, [&](std::size_t i) { return std::pow(static_cast<double>(i + 1), -params.zipf); });
  double left = 1;
  depth_ = cumulated(
      count, [&](std::size_t) { return std::exchange(left, left * (1 - 1 / kRecentDepth)); });
  popular_.resize(static_cast<std::size_t>(layers) * count);
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(layers); ++layer) {
    const std::span<std::int32_t> order(popular_.data() + layer * count, count);
    std::iota(order.begin(), order.end(), 0);
    const std::uint64_t seed = chained(chained(params.seed, 1), layer);
    for (std::size_t i = count; i > 1; --i)
      std::swap(order[i - 1],
                order[static_cast<std::size_t>(uniform(seed, i) * static_cast<double>(i))]);
  }
}

// Of all random numbers about a token in a layer, for one purpose.
std::uint64_t SyntheticRouting::seed_of(std::uint64_t purpose, std::uint32_t sequence,
                                        std::uint32_t position, std::int32_t layer) const {
  const std::uint64_t sequences = histories_.at({sequence, layer}).sequences;
  const std::uint64_t seed = chained(chained(chained(params_.seed, purpose), sequence), sequences);
  return chained(chained(seed, static_cast<std::uint64_t>(layer)), position);
}

std::int32_t SyntheticRouting::draw(const History& history, std::int32_t layer, double kind,
                                    double place) const {
  if (kind < params_.recency && !history.recent.empty()) {
    const std::size_t depth = place_in(depth_, history.recent.size(), place);
    return history.recent[history.recent.size() - 1 - depth];
  }
  const std::size_t rank = place_in(popularity_, popularity_.size(), place);
  return popular_[static_cast<std::size_t>(layer) * popularity_.size() + rank];
}

void SyntheticRouting::choose(std::uint32_t sequence, std::uint32_t position, std::int32_t layer,
                              std::span<std::int32_t> ids) {
  if (ids.size() > popularity_.size())
    throw Error("{} of {} experts are to be chosen", ids.size(), experts_);
  History& history = histories_[{sequence, layer}];
  if (position == 0) history = {.sequences = history.sequences + 1, .recent = {}, .last = 0};
  const std::uint64_t seed = seed_of(2, sequence, position, layer);
  std::uint64_t drawn = 0;
  const auto random = [&] { return uniform(seed, drawn++); };

  std::size_t chosen = 0;
  const auto take = [&](std::int32_t expert) {
    const auto so_far = ids.first(chosen);
    if (std::ranges::find(so_far, expert) == so_far.end()) ids[chosen++] = expert;
  };
  std::vector<std::int32_t>& recent = history.recent;
  for (std::size_t i = recent.size() - history.last; i < recent.size() && chosen < ids.size(); ++i)
    if (random() < params_.stickiness) take(recent[i]);
  // What popularity hardly ever gives is taken in its order in the end.
  constexpr std::uint64_t kDraws = 1000;
  while (chosen < ids.size() && drawn < kDraws) {
    const double kind = random();
    take(draw(history, layer, kind, random()));
  }
  for (std::size_t rank = 0; chosen < ids.size(); ++rank)
    take(popular_[static_cast<std::size_t>(layer) * popularity_.size() + rank]);

  std::ranges::sort(ids);
  std::erase_if(recent, [&](std::int32_t e) { return std::ranges::binary_search(ids, e); });
  recent.insert(recent.end(), ids.begin(), ids.end());
  history.last = ids.size();
}

void SyntheticRouting::foresee(const RoutedToken& token, std::span<const std::int32_t> chosen,
                               std::span<std::int32_t> ids) {
  const History& history = histories_.at({token.sequence, token.layer});
  const std::uint64_t seed = seed_of(3, token.sequence, token.position, token.layer);
  std::uint64_t drawn = 0;
  const auto random = [&] { return uniform(seed, drawn++); };
  const auto other = [&] {
    const double kind = random();
    return draw(history, token.layer, kind, random());
  };
  mix_guesses(chosen, token.experts, params_.foresight, random, other, ids);
}

}  // namespace sluice
