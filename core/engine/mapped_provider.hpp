// Nothing on the device: kernels read the weights where they lie, in pinned host memory, over the
// link on a GPU and in place on the CPU. For comparison with policies that copy.
#pragma once
#include "core/engine/layer_provider.hpp"
#include "core/weights/weight_store.hpp"

namespace sluice {

// Counts every needed unit as a miss and its bytes as moved, once a step; kernels that read a unit
// several times, as products of many rows do, take more than that over the link.
class MappedProvider final : public ILayerProvider {
 public:
  // Throws InputError for weights that are not all pinned. `weights` must outlive it.
  explicit MappedProvider(const WeightStore& weights);

  Lease acquire(const Step& step) override;
  void routed(std::span<const UnitId>) override {}
  std::uint32_t capacity(UnitKind kind) const override { return units_[kind]; }
  const Counters& counters() const override { return counters_; }

 private:
  Weights use(const Step& step, std::size_t i) override;
  void close(const Step&) noexcept override {}
  bool was_here(const Step&, std::size_t) const override { return true; }

  const WeightStore& weights_;
  const ModelView view_;
  PerKind<std::uint32_t> units_;
  Counters counters_;
};

}  // namespace sluice
