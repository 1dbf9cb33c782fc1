// Takes the rows of a window of text through single units, with weights from anywhere.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "models/calibration/observed_kernels.hpp"
#include "models/kv_cache.hpp"
#include "models/layer_ops.hpp"
#include "models/workspace.hpp"

namespace sluice {

class UnitRunner {
 public:
  // `device` is the CPU: hidden states lie in ordinary memory, and `observer` reads operands there.
  // Windows have up to `window` tokens. References must outlive this.
  UnitRunner(IDevice& device, const ModelConfig& config, const WeightStore& weights, DType type,
             std::uint32_t window, LinearObserver observer);

  // Hidden states are [tokens, hidden] of the type; both calls return when they are done.
  void embed(std::span<const std::int32_t> tokens, std::byte* hidden);
  // Adds the result of `unit`, of which `slab` is a slab in `encoding`, for positions 0 to rows - 1 of
  // one sequence.
  void run(UnitId unit, Encoding encoding, const std::byte* slab, std::byte* hidden,
           std::uint32_t rows);

 private:
  RowBlock block(std::uint32_t rows) const;
  void finish(const RowBlock& block, std::byte* hidden);

  const WeightStore& weights_;
  std::uint32_t window_;
  std::uint64_t row_bytes_;
  Ops ops_;
  PageTable pages_;
  KvCache cache_;
  Buffer memory_;
  const WorkspaceLayout work_;
  LayerOps layers_;
};

}  // namespace sluice
