// The layers of experts of a pass: which experts are acquired, in which steps, and what is computed
// of them while they are here. A row's sum runs over its experts by ascending id, whatever was here.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "models/expert_tables.hpp"
#include "models/foresight.hpp"
#include "models/layer_ops.hpp"
#include "models/pair_lists.hpp"
#include "models/router.hpp"
#include "models/walk.hpp"

namespace sluice {

class ExpertLayers {
 public:
  // For a model with experts. References must outlive this, and the stream must be done before this
  // ends.
  ExpertLayers(Ops& ops, const ModelConfig& config, const WeightStore& weights, DType type,
               const DecoderLimits& limits, const WorkspaceLayout& work, LayerOps& layers,
               Walk& walk, std::uint32_t passes_ahead, const RoutingHooks& hooks);

  // A pass over `rows` begins; what follows until the next one is part of it. To be called outside of
  // what the device may repeat, before it.
  void begin(ILayerProvider& provider, Phase phase, std::vector<RowsOf> rows, bool last);
  // Whether a decode pass needs nothing of the host, so that passes which are alike can be repeated.
  bool runs_alone(const ILayerProvider& provider) const {
    return provider.is_fixed() && !router_.has_sink();
  }

  // Routes the blocks behind the attention of `layer`, which has experts. The lease of that step, of
  // its attention, is open. Where a pass needs nothing of the host, that is all: run() is then nothing.
  void route(ILayerProvider& provider, const Step& step, const Weights& slab,
             std::span<const RowBlock> blocks, std::int32_t layer);
  // Adds the experts' results to the blocks' hidden states. No lease is open; `place` is that of the
  // attention in the walk.
  void run(ILayerProvider& provider, std::size_t place, std::span<const RowBlock> blocks);

 private:
  bool decodes() const { return phase_ == Phase::decode; }
  UnitId unit_of(std::uint32_t expert) const { return first_experts_[layer_index()] + expert; }
  std::size_t layer_index() const { return static_cast<std::size_t>(layer_); }

  void fill_tables(ILayerProvider& provider);
  template <typename F>
  void for_groups(ILayerProvider& provider, std::size_t place,
                  std::span<const std::uint32_t> experts, std::size_t most, const F& compute);
  void decode(ILayerProvider& provider, std::size_t place);
  void decode_fixed();
  void decode_alone(UnitId unit, const Weights& slab, const RowBlock& block);
  bool are_alike(std::span<const PlacedExpert> experts) const;
  void prefill(ILayerProvider& provider, std::size_t place, std::span<const RowBlock> blocks);
  void count_pairs(std::span<const std::int32_t> ids);
  void compute_here_first(Lease& lease, std::span<const std::uint32_t> experts);
  void compute(std::span<const PlacedExpert> experts);
  void compute_encoded(std::span<const PlacedExpert> experts, Encoding encoding);
  ExpertReads reads_of(std::span<const PlacedExpert> experts, std::span<const Range> slabs) const;
  void combine();

  Ops& ops_;
  const ModelConfig& config_;
  const WorkspaceLayout& work_;
  DType type_;
  LayerOps& layers_;
  Walk& walk_;
  Router router_;
  Foresight foresight_;
  ExpertTables tables_;
  Uploader pair_uploads_;
  std::vector<UnitId> first_experts_;             // by layer
  const ILayerProvider* tables_of_ = nullptr;     // whose experts fill the tables for good
  std::vector<std::vector<PlacedExpert>> fixed_;  // by layer, of that provider

  Phase phase_ = Phase::prefill;
  std::uint32_t rows_ = 0;
  bool last_ = false;
  // Of the layer at hand:
  std::int32_t layer_ = 0;
  std::uint64_t router_step_ = 0;
  std::vector<std::uint32_t> pairs_of_;  // by expert: how many chose it; empty: not known
};

}  // namespace sluice
