// What the next layer of experts will choose, as the hidden states of the layer at hand foretell it: its
// router is applied to them one layer early, where a policy wants to know.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "models/layer_ops.hpp"
#include "models/router.hpp"

namespace sluice {

// The ids of [rows, count], each row's best first: all rows' best, then each one's second, every id
// once. `count` may not be 0.
std::vector<std::int32_t> best_of_all_rows(std::span<const std::int32_t> ids, std::size_t count);

class Foresight {
 public:
  // For a model with experts. References must outlive this, and the stream must be done before this
  // ends.
  Foresight(Ops& ops, const ModelConfig& config, const ModelView& view, DType type,
            const DecoderLimits& limits, const WorkspaceLayout& work, LayerOps& layers);

  // In the lease of `step`, that of the router of `layer`: whether the provider's policy wants guesses, and
  // the provider keeps the next layer's router.
  bool is_wanted(ILayerProvider& provider, const Step& step, std::int32_t layer);
  // Then, behind the router: shows the rows of a decode pass to the next one. `done` is set when the host
  // can read what it says.
  void look(const RowBlock& block, const Router::Done& done);
  // Tells the provider what came of look(). The host must have waited for the stream since then. Where
  // `router` has its choices given, the guesses are given, too.
  void tell(ILayerProvider& provider, Router& router);

 private:
  Ops& ops_;
  const ModelConfig& config_;
  DType type_;
  const WorkspaceLayout& work_;
  LayerOps& layers_;
  std::vector<UnitId> first_experts_;  // by layer
  std::vector<std::int32_t> next_;     // by layer: the next one with experts; -1: none
  std::vector<UnitId> routers_;        // by layer: the unit that has its router
  Buffer ids_, weights_;               // pinned, [S, kMaxExpertsPerToken]
  // What is looked at:
  std::int32_t layer_ = -1;  // whose router; -1: nothing
  Weights slab_;             // that it lies in
  std::uint32_t rows_ = 0, count_ = 0;
};

}  // namespace sluice
