// Which experts each row of a pass goes through: the router's choice on its way from the device to the
// host, or what is given in its place on its way to the device.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/config.hpp"
#include "models/decoder.hpp"
#include "models/routing.hpp"
#include "models/uploader.hpp"
#include "models/workspace.hpp"

namespace sluice {

// Rows of a pass that follow each other: positions of one sequence.
struct RowsOf {
  std::uint32_t sequence = 0, position = 0, count = 0;
};

class Router {
 public:
  // References must outlive this, and the stream must be done before this ends.
  Router(Ops& ops, const ModelConfig& config, DType type, const DecoderLimits& limits,
         const WorkspaceLayout& work, std::uint32_t passes_ahead, const RoutingHooks& hooks);

  // A pass over `rows` begins. What is given for a decode pass is uploaded at once, for all layers.
  void begin(Phase phase, std::vector<RowsOf> rows);
  // A layer of it begins: what is given for a prefill is uploaded layer by layer.
  void begin_layer(std::int32_t layer);
  // What the last operation before chosen() sets. It is the router's own where `signals`.
  struct Done {
    std::uint32_t* words = nullptr;  // one for each row of the pass
    std::uint32_t value = 0;
  };
  Done done() const { return {pinned_done_.as<std::uint32_t>(), done_value_}; }
  // A choice for `count` rows from `first` on that the host does not ask for.
  RouteArgs args(std::int32_t layer, std::uint32_t first, std::uint32_t count) const;
  // Chooses for `count` rows from `first` on, from the scores in the workspace, before chosen(). `signals`:
  // nothing else is enqueued between.
  void choose(std::int32_t layer, std::uint32_t first, std::uint32_t count, bool signals);
  // The choice for all rows of the pass, [rows, per_token], ascending in each row; `step` is that of the
  // router. The host waits for it, on devices that do not execute as well: there it takes the time
  // that it takes elsewhere. Valid until the next layer begins.
  std::span<const std::int32_t> chosen(std::uint64_t step, std::int32_t layer);
  // What is known of it without waiting; else empty.
  std::span<const std::int32_t> foreseen(std::int32_t layer) const;

  bool has_sink() const { return sink_ != nullptr; }
  bool is_given() const { return given_ != nullptr; }
  // Where it is, in a decode pass: guesses at the choice of a later layer, best first in each row of
  // `ids`, [rows, count].
  void foresee(std::int32_t layer, std::uint32_t count, std::span<std::int32_t> ids);

 private:
  std::size_t pairs() const { return owners_.size() * per_token_; }
  std::size_t given_at(std::int32_t layer) const;
  void draw(std::int32_t layer, std::span<std::int32_t> ids);

  Ops& ops_;
  const ModelConfig& config_;
  const WorkspaceLayout& work_;
  DType type_;
  std::uint32_t per_token_;
  std::unique_ptr<IRouting> own_;
  IRouting* given_;
  IRoutingSink* sink_;
  Uploader uploads_;
  Buffer pinned_ids_, pinned_weights_;  // [R, X] as in the workspace; the second for the sink
  Buffer pinned_done_;                  // [R]
  std::uint32_t done_value_ = 0;        // of the layer at hand
  Phase phase_ = Phase::prefill;
  std::vector<RowsOf> rows_;
  std::vector<std::uint32_t> owners_;    // by row: its sequence
  std::vector<std::int32_t> given_ids_;  // of the layer, in a decode pass of all layers
};

}  // namespace sluice
