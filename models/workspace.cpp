#include "models/workspace.hpp"

#include <algorithm>

#include "models/kv_cache.hpp"
#include "models/sizes.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kAlignment = 256;

class Cutter {
 public:
  explicit Cutter(void* base) : base_(reinterpret_cast<std::uint64_t>(base)) {}

  template <typename T>
  void cut(T*& out, std::uint64_t elements) {
    align();
    cut_close(out, elements);
  }
  // Right behind what was cut before.
  template <typename T>
  void cut_close(T*& out, std::uint64_t elements) {
    out = reinterpret_cast<T*>(base_ + used_);
    used_ += elements * sizeof(T);
  }
  std::uint64_t used() {
    align();
    return used_;
  }

 private:
  void align() { used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment; }

  std::uint64_t base_, used_ = 0;
};

// The widest MLP or expert that the model has.
std::uint64_t widest(const ModelConfig& config) {
  std::int32_t width = 0;
  for (std::int32_t layer = 0; layer < config.layers; ++layer)
    width = std::max(width,
                     config.has_experts(layer) ? config.experts.intermediate : config.intermediate);
  return wide(width);
}

void cut_expert_space(Cutter& cutter, WorkspaceLayout& out, const ModelConfig& config,
                      std::uint64_t element, std::uint64_t rows, std::uint64_t piece,
                      std::uint64_t sequences) {
  const std::uint64_t hidden = wide(config.hidden), experts = wide(config.experts.count);
  const std::uint64_t chosen = wide(config.experts.per_token), layers = wide(config.layers);
  const std::uint64_t inter = wide(config.experts.intermediate);
  cutter.cut(out.scores, piece * experts * element);
  cutter.cut(out.expert_rows, rows * hidden * element);
  cutter.cut(out.expert_sums, rows * hidden);
  cutter.cut(out.expert_ids, rows * chosen);
  cutter.cut(out.expert_weights, rows * chosen);
  cutter.cut(out.given_ids, std::max(rows, layers * sequences) * chosen);
  cutter.cut(out.expert_pairs, rows * chosen);
  cutter.cut(out.pair_inner, sequences * chosen * 2 * inter * element);
  cutter.cut(out.pair_results, sequences * chosen * hidden * element);
  cutter.cut(out.expert_slabs, layers * experts);
}

}  // namespace

std::uint32_t prefill_rows(const DecoderLimits& limits) {
  const std::uint64_t all = std::uint64_t{limits.sequences} * limits.context;
  const std::uint64_t together = std::max(limits.context, limits.prefill_rows);
  return static_cast<std::uint32_t>(
      std::max<std::uint64_t>(std::min(all, together), limits.sequences));
}

std::uint32_t logit_rows(const DecoderLimits& limits) {
  return std::max(limits.sequences, limits.logit_rows);
}

WorkspaceLayout lay_out_workspace(void* base, const ModelConfig& config, DType type,
                                  const DecoderLimits& limits) {
  const std::uint64_t element = size_of(type), sequences = limits.sequences;
  const std::uint64_t rows = prefill_rows(limits), scored = logit_rows(limits);
  const std::uint64_t piece =
      std::max(std::min(limits.prefill_chunk, limits.context), limits.sequences);
  const std::uint64_t hidden = wide(config.hidden), inter = widest(config);
  const std::uint64_t q = wide(config.q_size()), kv = wide(config.kv_size());
  const std::uint64_t angles = std::uint64_t{limits.context} * wide(config.head_dim) / 2;

  WorkspaceLayout out;
  Cutter cutter(base);
  cutter.cut(out.hidden, rows * hidden * element);
  cutter.cut(out.normed, piece * hidden * element);
  cutter.cut(out.wide, piece * std::max(q + 2 * kv, 2 * inter) * element);
  cutter.cut(out.narrow, piece * std::max(q, inter) * element);
  cutter.cut(out.final_rows, scored * hidden * element);
  cutter.cut(out.logits, scored * wide(config.vocab) * element);
  cutter.cut(out.cos, angles);
  cutter.cut_close(out.sin, angles);
  cutter.cut(out.rows, 3 * rows);
  cutter.cut(out.params, sequences);
  cutter.cut_close(out.lengths, sequences);
  cutter.cut_close(out.generated, sequences);
  cutter.cut_close(out.active, sequences);
  cutter.cut_close(out.page_table, sequences * PageTable::pages_for(limits.context));
  cutter.cut(out.next_tokens, sequences);
  cutter.cut(out.chosen, sequences);
  cutter.cut(out.stop_ids, kMaxStopIds);
  if (config.experts.count > 0)
    cut_expert_space(cutter, out, config, element, rows, piece, sequences);
  out.bytes = cutter.used();
  return out;
}

}  // namespace sluice
