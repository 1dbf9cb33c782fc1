// Acquires what a forward pass with a recorded routing acquires, and computes nothing: what a policy
// and a capacity come to, without a model.
#pragma once
#include <vector>

#include "core/engine/layer_provider.hpp"
#include "models/best_possible.hpp"
#include "models/routing_file.hpp"
#include "models/walk.hpp"

namespace sluice {

class RoutingReplay {
 public:
  // Throws InputError where the routing is not of the view's layers and experts. `view` must outlive
  // this.
  RoutingReplay(const ModelView& view, const RoutingShape& shape);

  // One pass: the units that every token walks, behind each attention the experts of its layer in the
  // groups of the decoder, and the head. `last`: none follows. What it changed in the book of the
  // provider; hits and misses are those of experts alone.
  //
  // A policy that wants guesses at the next layer's experts is told of those that it will need, the first
  // ones of the record: there are no hidden states to guess from, so what comes of it is the best that
  // guesses can do.
  //
  // The experts of several tokens are needed in ascending order, those of a single one in the order of
  // the record.
  Counters pass(ILayerProvider& provider, const RoutedPass& pass, bool last);

  // Whether any guess was told.
  bool has_guessed() const { return has_guessed_; }
  // What was needed together, so far.
  const std::vector<NeededTogether>& needed() const { return needed_; }

 private:
  UnitId first_expert(const RoutedLayer& layer) const;
  std::vector<UnitId> experts_of(const RoutedLayer& layer) const;
  std::vector<UnitId> guesses_at(const RoutedLayer& layer, std::uint32_t wanted) const;

  ModelView view_;
  std::size_t per_token_;
  std::vector<UnitId> first_experts_;  // by layer; kNoUnit: it has none
  std::vector<UnitId> routers_;        // by layer
  UnitId head_ = kNoUnit;
  Walk walk_;
  std::vector<NeededTogether> needed_;
  bool has_guessed_ = false;
};

}  // namespace sluice
