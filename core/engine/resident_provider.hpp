// Every unit on the device for good: the ceiling of speed, and the oracle of the tests.
#pragma once
#include <vector>

#include "core/device/device.hpp"
#include "core/engine/budget.hpp"
#include "core/engine/layer_provider.hpp"
#include "core/weights/weight_store.hpp"

namespace sluice {

// Holds every unit but the embedding side by side in one block, each in the encoding that its transfer
// leaves on the device.
class ResidentProvider final : public ILayerProvider {
 public:
  // Loads everything over the compute stream and waits for it; what is dequantised passes through a
  // buffer of the largest such slab. References must outlive this. Throws MemoryLimitError when it
  // does not fit, with the bytes that it takes.
  ResidentProvider(
      IDevice& device, StreamId compute, const WeightStore& weights,
      const TransferOf& transfer = [](const UnitInfo&) { return Transfer{}; });
  ~ResidentProvider() override;  // drains the compute stream before memory is freed
  ResidentProvider(const ResidentProvider&) = delete;
  ResidentProvider& operator=(const ResidentProvider&) = delete;

  Lease acquire(const Step& step) override;
  void routed(std::span<const UnitId>) override {}
  std::uint32_t capacity(UnitKind kind) const override { return units_[kind]; }
  const Counters& counters() const override { return counters_; }  // nothing moves
  bool is_fixed() const override { return true; }
  std::uint64_t loaded_bytes() const { return loaded_bytes_; }

 private:
  Weights use(const Step& step, std::size_t i) override;
  void close(const Step&) noexcept override {}
  bool was_here(const Step&, std::size_t) const override { return true; }
  void load(const TransferOf& transfer);

  IDevice& device_;
  StreamId compute_;
  const WeightStore& weights_;
  std::vector<Encoding> encodings_;     // index: UnitId
  std::vector<std::uint64_t> offsets_;  // index: UnitId
  Buffer memory_;
  PerKind<std::uint32_t> units_;
  std::uint64_t loaded_bytes_ = 0;
  const Counters counters_;
};

}  // namespace sluice
