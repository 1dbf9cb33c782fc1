// Where each layer's experts lie, as kernels look it up on the device; the host knows what it says.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/layer_provider.hpp"
#include "models/ops/ops.hpp"

namespace sluice {

// An expert of a layer where it can be read.
struct PlacedExpert {
  std::uint32_t id = 0;
  Weights weights;
};

class ExpertTables {
 public:
  // `slabs` is [layers, experts] in device memory. `ops` must outlive this.
  ExpertTables(Ops& ops, const std::byte** slabs, std::uint32_t layers, std::uint32_t experts);

  ExpertTable of(std::int32_t layer) const { return slabs_ + first(layer); }
  // Puts these in, in stream order. Entries that say so already cost nothing.
  void place(std::int32_t layer, std::span<const PlacedExpert> experts);

 private:
  std::size_t first(std::int32_t layer) const { return static_cast<std::size_t>(layer) * experts_; }

  Ops& ops_;
  const std::byte** slabs_;
  std::uint32_t experts_;
  std::vector<const std::byte*> known_;  // what is there once all that is enqueued is done
};

}  // namespace sluice
