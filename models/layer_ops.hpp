// A decoder's units put into operations: what each of them does to rows of the residual stream.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/weights/weight_store.hpp"
#include "models/config.hpp"
#include "models/kv_cache.hpp"
#include "models/model_plan.hpp"
#include "models/ops/ops.hpp"
#include "models/workspace.hpp"

namespace sluice {

// Rows that go through an operation together.
struct RowBlock {
  RowIndex rows;
  std::uint32_t first = 0;      // its place among the rows of the pass
  std::byte* hidden = nullptr;  // [rows.count, hidden]
  // What the host knows of the rows' positions; see AttentionArgs.
  bool consecutive = false;
  std::uint32_t longest = 0;
  std::uint64_t attended = 0, cached = 0;
};

class LayerOps {
 public:
  // Throws InputError when the weights were packed for another activation type than `type`.
  // References must outlive this.
  LayerOps(Ops& ops, const ModelConfig& config, const WeightStore& weights, DType type,
           std::uint32_t context, const WorkspaceLayout& work, const KvCache& cache);

  // Fills `hidden` of the rows from the embedding, which is read in host memory.
  void embed(const RowBlock& block);
  // Adds the unit's result to the block's hidden states. `slab` is the weights of `unit`.
  void attention(UnitId unit, const Weights& slab, const RowBlock& block);
  void mlp(UnitId unit, const Weights& slab, const RowBlock& block);
  // In a layer of experts, behind attention(): normalises the block's rows into `normed` and writes
  // the router's scores. `slab` is the attention unit's, which has both.
  void router(UnitId unit, const Weights& slab, const RowBlock& block, std::byte* normed);
  NormLinearArgs router_args(UnitId unit, const Weights& slab, const RowBlock& block,
                             std::byte* normed) const;
  // Takes some of `rows` rows through one expert: those of `pairs` [count], an expert's of one block,
  // numbered over all rows. Adds what comes out, by its weights, to the workspace's sums.
  void expert(UnitId unit, const Weights& slab, const std::int32_t* pairs, std::uint32_t count,
              std::uint32_t rows);
  // Of all experts of the unit's layer.
  ExpertShape expert_shape(UnitId unit, Encoding encoding) const;
  // Writes the logits of rows rows[i] of `hidden`, which ascend, from row `first` of the workspace's
  // logits on.
  void head(const Weights& slab, const std::byte* hidden, std::span<const std::uint32_t> rows,
            std::uint32_t first);

  UnitId head_unit() const { return head_; }
  bool is_attention(UnitId unit) const { return weights_.spec(unit).kind == UnitKind::attention; }
  std::int32_t layer_of(UnitId unit) const { return weights_.spec(unit).layer; }

 private:
  RmsNormArgs norm(UnitId unit, std::size_t tensor, const Weights& slab, const void* x, void* out,
                   std::uint32_t rows) const;
  const std::byte* data_of(UnitId unit, std::size_t tensor, const Weights& slab) const;
  LinearArgs matrix(UnitId unit, std::size_t tensor, Position bias, const Weights& slab,
                    std::uint32_t rows, std::uint32_t n, std::uint32_t k) const;
  std::uint32_t hidden_size() const { return static_cast<std::uint32_t>(config_.hidden); }

  Ops& ops_;
  const ModelConfig& config_;
  const WeightStore& weights_;
  DType type_;
  std::uint32_t context_;
  const WorkspaceLayout& work_;
  const KvCache& cache_;
  std::vector<AttentionTensors> attention_;  // by layer
  MlpTensors mlp_;
  UnitId embedding_, head_;
};

}  // namespace sluice
