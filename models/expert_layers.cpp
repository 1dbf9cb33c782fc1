#include "models/expert_layers.hpp"

#include <algorithm>
#include <utility>

#include "models/expert_groups.hpp"
#include "models/sizes.hpp"

namespace sluice {
namespace {

// Slabs that lie side by side are one range.
std::vector<Range> joined_ranges(std::span<const PlacedExpert> experts) {
  std::vector<Range> out;
  for (const PlacedExpert& one : experts) {
    const Range& range = one.weights.range;
    if (!out.empty() && out.back().begin + out.back().size == range.begin)
      out.back().size += range.size;
    else
      out.push_back(range);
  }
  return out;
}

}  // namespace

ExpertLayers::ExpertLayers(Ops& ops, const ModelConfig& config, const WeightStore& weights,
                           DType type, const DecoderLimits& limits, const WorkspaceLayout& work,
                           LayerOps& layers, Walk& walk, std::uint32_t passes_ahead,
                           const RoutingHooks& hooks)
    : ops_(ops),
      config_(config),
      work_(work),
      type_(type),
      layers_(layers),
      walk_(walk),
      router_(ops, config, type, limits, work, passes_ahead, hooks),
      foresight_(ops, config, weights.view(), type, limits, work, layers),
      tables_(ops, work.expert_slabs, size(config.layers), size(config.experts.count)),
      pair_uploads_(ops, 2,
                    std::uint64_t{prefill_rows(limits)} * size(config.experts.per_token) *
                        sizeof(std::int32_t),
                    "the rows of experts"),
      first_experts_(first_experts(weights.view())),
      fixed_(first_experts_.size()) {}

void ExpertLayers::begin(ILayerProvider& provider, Phase phase, std::vector<RowsOf> rows,
                         bool last) {
  phase_ = phase;
  last_ = last;
  rows_ = 0;
  for (const RowsOf& some : rows) rows_ += some.count;
  router_.begin(phase, std::move(rows));
  if (!decodes()) return;
  if (!provider.is_fixed())
    tables_of_ = nullptr;
  else if (std::exchange(tables_of_, &provider) != &provider)
    fill_tables(provider);
}

void ExpertLayers::fill_tables(ILayerProvider& provider) {
  for (layer_ = 0; layer_ < config_.layers; ++layer_) {
    if (!config_.has_experts(layer_)) continue;
    std::vector<UnitId> units(size(config_.experts.count));
    for (std::uint32_t expert = 0; expert < units.size(); ++expert) units[expert] = unit_of(expert);
    std::vector<PlacedExpert>& placed = fixed_[layer_index()];
    placed.clear();
    Lease lease = provider.acquire(walk_.apart(units, phase_));
    for (std::uint32_t expert = 0; expert < units.size(); ++expert)
      placed.push_back({expert, lease.use(expert)});
    tables_.place(layer_, placed);
  }
}

void ExpertLayers::route(ILayerProvider& provider, const Step& step, const Weights& slab,
                         std::span<const RowBlock> blocks, std::int32_t layer) {
  layer_ = layer;
  router_step_ = step.index;
  router_.begin_layer(layer_);
  if (decodes() && runs_alone(provider)) return decode_alone(step.needs[0], slab, blocks[0]);
  const std::uint64_t row_bytes = size(config_.hidden) * size_of(type_);
  const bool looks =
      decodes() && !provider.is_fixed() && foresight_.is_wanted(provider, step, layer_);
  for (const RowBlock& block : blocks) {
    layers_.router(step.needs[0], slab, block, work_.expert_rows + block.first * row_bytes);
    router_.choose(layer_, block.first, block.rows.count, !looks);
  }
  if (looks) foresight_.look(blocks[0], router_.done());
}

void ExpertLayers::run(ILayerProvider& provider, std::size_t place,
                       std::span<const RowBlock> blocks) {
  if (!decodes())
    prefill(provider, place, blocks);
  else if (!provider.is_fixed())
    decode(provider, place);
  else if (!runs_alone(provider))
    decode_fixed();
}

// ---- decoding: the pairs of few rows

void ExpertLayers::decode(ILayerProvider& provider, std::size_t place) {
  count_pairs(router_.chosen(router_step_, layer_));
  std::vector<std::uint32_t> experts;
  for (std::uint32_t expert = 0; expert < pairs_of_.size(); ++expert)
    if (pairs_of_[expert] != 0) experts.push_back(expert);
  const std::size_t most =
      experts_of_a_step(phase_, experts.size(), provider.capacity(UnitKind::expert));
  for_groups(provider, place, experts, most,
             [&](Lease& lease, std::span<const std::uint32_t> group) {
               compute_here_first(lease, group);
             });
  combine();
  // Behind all that this layer needs: a guess gets in the way of nothing.
  foresight_.tell(provider, router_);
}

void ExpertLayers::decode_fixed() {
  count_pairs(router_.chosen(router_step_, layer_));
  compute(fixed_[layer_index()]);
  combine();
}

// All of a layer in one operation, but where its experts are not of one encoding.
void ExpertLayers::decode_alone(UnitId unit, const Weights& slab, const RowBlock& block) {
  const std::vector<PlacedExpert>& experts = fixed_[layer_index()];
  const RouteArgs route = router_.args(layer_, 0, rows_);
  count_pairs(router_.foreseen(layer_));
  if (!are_alike(experts)) {
    layers_.router(unit, slab, block, work_.expert_rows);
    ops_.route(route);
    compute(experts);
    return combine();
  }
  const std::vector<Range> slabs = joined_ranges(experts);
  ops_.routed_experts({.router = layers_.router_args(unit, slab, block, work_.expert_rows),
                       .route = route,
                       .table = tables_.of(layer_),
                       .shape = layers_.expert_shape(unit_of(0), experts[0].weights.encoding),
                       .inner = work_.pair_inner,
                       .results = work_.pair_results,
                       .residual = work_.hidden},
                      slab, reads_of(experts, slabs));
}

bool ExpertLayers::are_alike(std::span<const PlacedExpert> experts) const {
  return std::ranges::all_of(experts, [&](const PlacedExpert& one) {
    return one.weights.encoding == experts[0].weights.encoding;
  });
}

void ExpertLayers::count_pairs(std::span<const std::int32_t> ids) {
  pairs_of_.assign(ids.empty() ? 0 : size(config_.experts.count), 0);
  for (const std::int32_t id : ids) ++pairs_of_[static_cast<std::size_t>(id)];
}

// `compute` is called for each group of up to `most` experts while its lease is open.
template <typename F>
void ExpertLayers::for_groups(ILayerProvider& provider, std::size_t place,
                              std::span<const std::uint32_t> experts, std::size_t most,
                              const F& compute) {
  std::vector<UnitId> units;
  for (const std::uint32_t expert : experts) units.push_back(unit_of(expert));
  const std::span<const UnitId> all(units);
  for (std::size_t first = 0; first < all.size(); first += most) {
    const std::size_t count = std::min(most, all.size() - first);
    Lease lease = provider.acquire(walk_.experts(
        place, phase_, rows_, last_, all.subspan(first, count), all.subspan(first + count)));
    compute(lease, experts.subspan(first, count));
  }
}

// What is here goes in one operation; each of the others as soon as it has come.
void ExpertLayers::compute_here_first(Lease& lease, std::span<const std::uint32_t> experts) {
  std::vector<PlacedExpert> here;
  std::vector<std::size_t> to_come;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (lease.was_here(i))
      here.push_back({experts[i], lease.use(i)});
    else
      to_come.push_back(i);
  }
  compute(here);
  for (const std::size_t i : to_come) {
    const PlacedExpert one{experts[i], lease.use(i)};
    compute({&one, 1});
  }
}

void ExpertLayers::compute(std::span<const PlacedExpert> experts) {
  tables_.place(layer_, experts);
  for (const Encoding encoding : {Encoding::native, Encoding::int8, Encoding::int4}) {
    std::vector<PlacedExpert> alike;
    for (const PlacedExpert& one : experts)
      if (one.weights.encoding == encoding) alike.push_back(one);
    if (!alike.empty()) compute_encoded(alike, encoding);
  }
}

void ExpertLayers::compute_encoded(std::span<const PlacedExpert> experts, Encoding encoding) {
  ExpertPairsArgs args{.x = work_.expert_rows,
                       .type = type_,
                       .rows = rows_,
                       .per_token = size(config_.experts.per_token),
                       .ids = work_.expert_ids,
                       .table = tables_.of(layer_),
                       .which = {},
                       .shape = layers_.expert_shape(unit_of(0), encoding),
                       .inner = work_.pair_inner,
                       .out = work_.pair_results};
  for (const PlacedExpert& one : experts) args.which.insert(one.id);
  const std::vector<Range> slabs = joined_ranges(experts);
  ops_.expert_pairs(args, reads_of(experts, slabs));
}

ExpertReads ExpertLayers::reads_of(std::span<const PlacedExpert> experts,
                                   std::span<const Range> slabs) const {
  ExpertReads reads{.experts = size(config_.experts.count), .slabs = slabs};
  if (pairs_of_.empty()) {
    reads.pairs = rows_ * size(config_.experts.per_token);
    reads.chosen = std::min(reads.pairs, static_cast<std::uint32_t>(experts.size()));
    return reads;
  }
  for (const PlacedExpert& one : experts) {
    reads.pairs += pairs_of_[one.id];
    reads.chosen += pairs_of_[one.id] != 0;
  }
  return reads;
}

void ExpertLayers::combine() {
  ops_.combine({.pairs = work_.pair_results,
                .weights = work_.expert_weights,
                .residual = work_.hidden,
                .type = type_,
                .rows = rows_,
                .per_token = size(config_.experts.per_token),
                .hidden = size(config_.hidden)});
}

// ---- prefill: expert by expert, each over the rows of one block after the other

void ExpertLayers::prefill(ILayerProvider& provider, std::size_t place,
                           std::span<const RowBlock> blocks) {
  std::vector<std::uint32_t> ends;
  for (const RowBlock& block : blocks) ends.push_back(block.first + block.rows.count);
  const PairLists lists =
      list_pairs(router_.chosen(router_step_, layer_), size(config_.experts.per_token),
                 size(config_.experts.count), ends);
  pair_uploads_.send(work_.expert_pairs, {std::as_bytes(std::span(lists.pairs))});
  ops_.clear_sums({.sums = work_.expert_sums, .rows = rows_, .hidden = size(config_.hidden)});
  auto run = lists.runs.begin();
  const auto compute_one = [&](std::uint32_t expert, const Weights& slab) {
    for (; run != lists.runs.end() && run->expert == expert; ++run)
      layers_.expert(unit_of(expert), slab, work_.expert_pairs + run->first, run->count, rows_);
  };
  const std::size_t most =
      experts_of_a_step(phase_, lists.experts.size(), provider.capacity(UnitKind::expert));
  for_groups(provider, place, lists.experts, most,
             [&](Lease& lease, std::span<const std::uint32_t> group) {
               for (std::size_t i = 0; i < group.size(); ++i) compute_one(group[i], lease.use(i));
             });
  ops_.add_sums({.sums = work_.expert_sums,
                 .residual = work_.hidden,
                 .type = type_,
                 .rows = rows_,
                 .hidden = size(config_.hidden)});
}

}  // namespace sluice
