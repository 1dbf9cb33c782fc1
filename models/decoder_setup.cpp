#include "models/decoder_setup.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "models/rope.hpp"
#include "models/uploader.hpp"

namespace sluice {
namespace {

bool has_units(const WeightStore& weights, UnitKind kind) {
  return std::ranges::any_of(weights.view().units,
                             [&](const UnitInfo& unit) { return unit.kind == kind; });
}

}  // namespace

DecoderLimits checked_limits(const ModelConfig& config, const DecoderLimits& limits) {
  const ExpertConfig& experts = config.experts;
  if (experts.count > static_cast<std::int32_t>(kMaxExperts) ||
      experts.per_token > static_cast<std::int32_t>(kMaxExpertsPerToken))
    throw InputError("{} chooses {} of {} experts a layer; up to {} of up to {} can be",
                     name_of(config.architecture), experts.per_token, experts.count,
                     kMaxExpertsPerToken, kMaxExperts);
  const std::uint32_t most = Decoder::max_context(config);
  if (limits.context == 0 || limits.context > most)
    throw InputError("a context of {} positions cannot be: the model has 1 to {}", limits.context,
                     most);
  if (limits.sequences == 0 || limits.prefill_chunk == 0)
    throw InputError(
        "a decoder of {} sequences and {} rows at a time cannot be: at least 1 of each",
        limits.sequences, limits.prefill_chunk);
  return limits;
}

void upload_rope(Ops& ops, const ModelConfig& config, const DecoderLimits& limits,
                 const WorkspaceLayout& work) {
  const auto head_dim = static_cast<std::uint32_t>(config.head_dim);
  const std::size_t angles = std::size_t{limits.context} * (head_dim / 2);
  std::vector<float> tables(2 * angles);
  const std::span<float> both(tables);
  if (ops.device().info().executes)
    fill_rope_tables(config.rope, head_dim, limits.context, both.first(angles), both.last(angles));
  Uploader once(ops, 1, both.size_bytes(), "the tables of angles");
  once.send(work.cos, {std::as_bytes(both)});
  ops.device().sync(ops.device().record(ops.stream()));
}

KernelShapes kernel_shapes(const ModelConfig& config, const WeightStore& weights, DType type,
                           const DecoderLimits& limits) {
  const auto size = [](std::int32_t n) { return static_cast<std::uint32_t>(n); };
  const std::uint32_t hidden = size(config.hidden);
  const std::uint32_t q = size(config.q_size()), kv = size(config.kv_size());
  std::vector<std::pair<std::uint32_t, std::uint32_t>> matrices{{q + 2 * kv, hidden}, {hidden, q}};
  const auto add_mlp = [&](std::uint32_t width) {
    matrices.insert(matrices.end(), {{2 * width, hidden}, {hidden, width}});
  };
  if (has_units(weights, UnitKind::mlp)) add_mlp(size(config.intermediate));
  if (has_units(weights, UnitKind::expert)) {
    add_mlp(size(config.experts.intermediate));
    matrices.emplace_back(size(config.experts.count), hidden);  // the router
  }
  const bool quantised = std::ranges::any_of(weights.view().units, [&](const UnitInfo& unit) {
    return weights.stores(unit.id, Encoding::int8) || weights.stores(unit.id, Encoding::int4);
  });
  return {.type = type,
          .matrices = std::move(matrices),
          .heads = size(config.heads),
          .kv_heads = size(config.kv_heads),
          .head_dim = size(config.head_dim),
          .vocab = size(config.vocab),
          .quantised = quantised,
          .experts = has_units(weights, UnitKind::expert),
          .rows = std::max(std::min(limits.prefill_chunk, limits.context), limits.sequences),
          .sequences = limits.sequences,
          .context = limits.context};
}

}  // namespace sluice
