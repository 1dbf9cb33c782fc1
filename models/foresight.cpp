#include "models/foresight.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "models/expert_groups.hpp"

namespace sluice {
namespace {

// A row's ids by falling weight, ties by rising id. Weights are not negative, so their bits are in their
// order, and those of what is no number have one, too.
void sort_best_first(std::span<std::int32_t> ids, std::span<const float> weights) {
  std::vector<std::pair<std::uint32_t, std::int32_t>> order;
  for (std::size_t i = 0; i < ids.size(); ++i)
    order.emplace_back(~std::bit_cast<std::uint32_t>(weights[i]), ids[i]);
  std::ranges::sort(order);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = order[i].second;
}

std::uint64_t bytes_of(const DecoderLimits& limits) {
  return std::uint64_t{limits.sequences} * kMaxExpertsPerToken * sizeof(std::int32_t);
}

}  // namespace

std::vector<std::int32_t> best_of_all_rows(std::span<const std::int32_t> ids, std::size_t count) {
  std::vector<std::int32_t> out;
  for (std::size_t rank = 0; rank < count; ++rank)
    for (std::size_t at = rank; at < ids.size(); at += count)
      if (std::ranges::find(out, ids[at]) == out.end()) out.push_back(ids[at]);
  return out;
}

Foresight::Foresight(Ops& ops, const ModelConfig& config, const ModelView& view, DType type,
                     const DecoderLimits& limits, const WorkspaceLayout& work, LayerOps& layers)
    : ops_(ops),
      config_(config),
      type_(type),
      work_(work),
      layers_(layers),
      first_experts_(first_experts(view)),
      next_(first_experts_.size(), -1),
      routers_(attention_units(view)),
      ids_(ops.device(), Buffer::Where::pinned, bytes_of(limits), "guesses at experts"),
      weights_(ops.device(), Buffer::Where::pinned, bytes_of(limits), "the guesses' weights") {
  for (std::int32_t layer = config.layers - 1, next = -1; layer >= 0; --layer) {
    next_[static_cast<std::size_t>(layer)] = next;
    if (config.has_experts(layer)) next = layer;
  }
}

bool Foresight::is_wanted(ILayerProvider& provider, const Step& step, std::int32_t layer) {
  layer_ = -1;
  const std::int32_t next = next_[static_cast<std::size_t>(layer)];
  if (next < 0) return false;
  const std::uint32_t wanted = provider.wanted_guesses(step);
  if (wanted == 0) return false;
  const std::optional<Weights> slab = provider.kept(routers_[static_cast<std::size_t>(next)]);
  if (!slab) return false;
  layer_ = next;
  slab_ = *slab;
  count_ =
      std::min({wanted, static_cast<std::uint32_t>(config_.experts.count), kMaxExpertsPerToken});
  return true;
}

void Foresight::look(const RowBlock& block, const Router::Done& done) {
  rows_ = block.rows.count;
  layers_.router(routers_[static_cast<std::size_t>(layer_)], slab_, block, work_.normed);
  ops_.route({.scores = work_.scores,
              .type = type_,
              .rows = rows_,
              .experts = static_cast<std::uint32_t>(config_.experts.count),
              .per_token = count_,
              .ids = ids_.as<std::int32_t>(),
              .weights = weights_.as<float>(),
              .done = done.words,
              .done_value = done.value});
}

void Foresight::tell(ILayerProvider& provider, Router& router) {
  if (layer_ < 0) return;
  const std::size_t pairs = std::size_t{rows_} * count_;
  const std::array touched{range_of(ids_.data(), pairs * sizeof(std::int32_t)),
                           range_of(weights_.data(), pairs * sizeof(float))};
  ops_.device().host({.name = "read_guesses",
                      .on = Resource::host,
                      .bytes = touched[0].size + touched[1].size,
                      .reads = touched});
  std::vector<std::int32_t> ids(pairs);
  if (router.is_given()) {
    router.foresee(layer_, count_, ids);
  } else {
    std::copy_n(ids_.as<std::int32_t>(), pairs, ids.begin());
    for (std::size_t first = 0; first < pairs; first += count_)
      sort_best_first(std::span(ids).subspan(first, count_),
                      {weights_.as<float>() + first, count_});
  }
  std::vector<UnitId> units;
  for (const std::int32_t id : best_of_all_rows(ids, count_))
    units.push_back(first_experts_[static_cast<std::size_t>(layer_)] + static_cast<UnitId>(id));
  provider.routed(units);
}

}  // namespace sluice
