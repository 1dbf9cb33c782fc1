#include "models/layer_ops.hpp"

#include "models/sizes.hpp"

#include <cmath>

namespace sluice {
namespace {

void check_types(const WeightStore& weights, DType type) {
  for (const UnitSpec& unit : weights.plan().units) {
    for (const TensorSpec& tensor : unit.tensors) {
      if (type == DType::f32 || tensor.dtype == type || tensor.dtype == DType::f32) continue;
      throw InputError("{} is packed as {}, which a decoder of type {} does not read", tensor.name,
                       name_of(tensor.dtype), name_of(type));
    }
  }
}

// Kernels that take several experts of a layer at once know one type for all of them.
void check_experts(const WeightStore& weights) {
  const std::vector<UnitSpec>& units = weights.plan().units;
  for (std::size_t i = 1; i < units.size(); ++i) {
    if (units[i].kind != UnitKind::expert) continue;
    const UnitSpec& like =
        units[i].layer == units[i - 1].layer && units[i - 1].kind == UnitKind::expert ? units[i - 1]
                                                                                      : units[i];
    const DType type = like.tensors[expert_tensors().gate].dtype;
    for (const TensorSpec& tensor : units[i].tensors)
      if (tensor.dtype != type)
        throw InputError("{} is packed as {}, other matrices of its layer's experts as {}",
                         tensor.name, name_of(tensor.dtype), name_of(type));
  }
}

}  // namespace

LayerOps::LayerOps(Ops& ops, const ModelConfig& config, const WeightStore& weights, DType type,
                   std::uint32_t context, const WorkspaceLayout& work, const KvCache& cache)
    : ops_(ops),
      config_(config),
      weights_(weights),
      type_(type),
      context_(context),
      work_(work),
      cache_(cache),
      mlp_(mlp_tensors(config)),
      embedding_(0),
      head_(static_cast<UnitId>(weights.plan().units.size() - 1)) {
  check_types(weights, type);
  check_experts(weights);
  attention_.reserve(static_cast<std::size_t>(config.layers));
  for (std::int32_t layer = 0; layer < config.layers; ++layer)
    attention_.push_back(attention_tensors(config, layer));
}

void LayerOps::embed(const RowBlock& block) {
  // A tied embedding is the first tensor of the head's slab.
  const UnitId from = weights_.spec(embedding_).shares.value_or(embedding_);
  const TensorSpec& table = weights_.spec(from).tensors[embedding_tensors().weight];
  ops_.embed(
      {.rows = block.rows,
       .table = weights_.slab(from, Encoding::native) +
                weights_.layout().place(from, embedding_tensors().weight, Encoding::native).data,
       .table_type = table.dtype,
       .out = block.hidden,
       .type = type_,
       .vocab = size(config_.vocab),
       .hidden = hidden_size()});
}

void LayerOps::attention(UnitId unit, const Weights& slab, const RowBlock& block) {
  const std::int32_t layer = weights_.spec(unit).layer;
  const AttentionTensors& at = attention_[static_cast<std::size_t>(layer)];
  const std::uint32_t rows = block.rows.count;
  const std::uint32_t q_size = size(config_.q_size());
  const KvLayer kv = cache_.layer(layer, work_.page_table);

  LinearArgs qkv = matrix(unit, at.q, at.q_bias, slab, rows, q_size + 2 * size(config_.kv_size()),
                          hidden_size());
  qkv.x = work_.normed;
  qkv.out = work_.wide;
  ops_.norm_linear({norm(unit, at.input_norm, slab, block.hidden, work_.normed, rows), qkv}, slab);

  RopeStoreArgs rope{.qkv = work_.wide,
                     .type = type_,
                     .rows = block.rows,
                     .heads = size(config_.heads),
                     .eps = static_cast<float>(config_.rms_eps),
                     .cos = work_.cos,
                     .sin = work_.sin,
                     .context = context_,
                     .kv = kv};
  if (at.q_norm) {
    rope.q_norm = data_of(unit, *at.q_norm, slab);
    rope.k_norm = data_of(unit, *at.k_norm, slab);
    rope.norm_type = weights_.spec(unit).tensors[*at.q_norm].dtype;
  }
  const AttentionArgs attention{
      .qkv = work_.wide,
      .type = type_,
      .rows = block.rows,
      .heads = size(config_.heads),
      .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim))),
      .kv = kv,
      .out = work_.narrow,
      .consecutive = block.consecutive,
      .longest = block.longest,
      .attended = block.attended,
      .cached = block.cached};
  ops_.rope_attention({rope, attention}, slab);

  LinearArgs out = matrix(unit, at.o, at.o_bias, slab, rows, hidden_size(), q_size);
  out.x = work_.narrow;
  out.residual = block.hidden;
  out.out = work_.normed;
  ops_.linear(out, slab);
}

void LayerOps::mlp(UnitId unit, const Weights& slab, const RowBlock& block) {
  const MlpTensors& at = mlp_;
  const std::uint32_t rows = block.rows.count, inter = size(config_.intermediate);

  LinearArgs gate_up = matrix(unit, at.gate, at.gate_bias, slab, rows, 2 * inter, hidden_size());
  gate_up.x = work_.normed;
  gate_up.out = work_.wide;
  ops_.gated(
      {norm(unit, at.post_attention_norm, slab, block.hidden, work_.normed, rows),
       gate_up,
       {.gate_up = work_.wide, .out = work_.narrow, .type = type_, .rows = rows, .inter = inter}},
      slab);

  LinearArgs down = matrix(unit, at.down, at.down_bias, slab, rows, hidden_size(), inter);
  down.x = work_.narrow;
  down.residual = block.hidden;
  down.out = work_.normed;
  ops_.linear(down, slab);
}

void LayerOps::router(UnitId unit, const Weights& slab, const RowBlock& block, std::byte* normed) {
  ops_.norm_linear(router_args(unit, slab, block, normed), slab);
}

NormLinearArgs LayerOps::router_args(UnitId unit, const Weights& slab, const RowBlock& block,
                                     std::byte* normed) const {
  const AttentionTensors& at = attention_[static_cast<std::size_t>(weights_.spec(unit).layer)];
  LinearArgs scores = matrix(unit, *at.router, std::nullopt, slab, block.rows.count,
                             size(config_.experts.count), hidden_size());
  scores.x = normed;
  scores.out = work_.scores;
  return {.norm = norm(unit, *at.post_attention_norm, slab, block.hidden, normed, block.rows.count),
          .linear = scores,
          .keeps_normed = true};
}

void LayerOps::expert(UnitId unit, const Weights& slab, const std::int32_t* pairs,
                      std::uint32_t count, std::uint32_t rows) {
  const std::uint32_t inter = size(config_.experts.intermediate), hidden = hidden_size();
  const std::uint32_t per_token = size(config_.experts.per_token);
  ops_.gather_rows({.x = work_.expert_rows,
                    .pairs = pairs,
                    .out = work_.normed,
                    .type = type_,
                    .count = count,
                    .per_token = per_token,
                    .hidden = hidden},
                   rows);
  LinearArgs gate_up =
      matrix(unit, expert_tensors().gate, std::nullopt, slab, count, 2 * inter, hidden);
  gate_up.x = work_.normed;
  gate_up.out = work_.wide;
  ops_.linear(gate_up, slab);
  ops_.silu_mul(
      {.gate_up = work_.wide, .out = work_.narrow, .type = type_, .rows = count, .inter = inter});
  LinearArgs down = matrix(unit, expert_tensors().down, std::nullopt, slab, count, hidden, inter);
  down.x = work_.narrow;
  down.out = work_.normed;
  ops_.linear(down, slab);
  ops_.add_rows({.y = work_.normed,
                 .pairs = pairs,
                 .weights = work_.expert_weights,
                 .sums = work_.expert_sums,
                 .type = type_,
                 .count = count,
                 .per_token = per_token,
                 .hidden = hidden},
                rows);
}

ExpertShape LayerOps::expert_shape(UnitId unit, Encoding encoding) const {
  const TensorPlace& gate_up = weights_.layout().place(unit, expert_tensors().gate, encoding);
  const TensorPlace& down = weights_.layout().place(unit, expert_tensors().down, encoding);
  return {.encoding = encoding,
          .weight_type = weights_.spec(unit).tensors[expert_tensors().gate].dtype,
          .hidden = hidden_size(),
          .inter = size(config_.experts.intermediate),
          .gate_up = gate_up.data,
          .gate_up_scales = gate_up.scales,
          .down = down.data,
          .down_scales = down.scales};
}

void LayerOps::head(const Weights& slab, const std::byte* hidden,
                    std::span<const std::uint32_t> rows, std::uint32_t first) {
  const std::uint64_t row_bytes = hidden_size() * size_of(type_);
  const std::uint32_t vocab = size(config_.vocab);
  const auto count = static_cast<std::uint32_t>(rows.size());
  LinearArgs logits =
      matrix(head_, head_tensors().weight, std::nullopt, slab, count, vocab, hidden_size());
  logits.x = work_.final_rows;
  logits.out = work_.logits + std::uint64_t{first} * vocab * size_of(type_);
  const auto norm_rows = [&](std::size_t at, std::uint32_t n) {
    return norm(head_, head_tensors().norm, slab, hidden + rows[at] * row_bytes,
                work_.final_rows + at * row_bytes, n);
  };
  if (rows.back() - rows.front() + 1 == count) {
    ops_.norm_linear({norm_rows(0, count), logits}, slab);
    return;
  }
  for (std::size_t i = 0; i < rows.size(); ++i) ops_.rms_norm(norm_rows(i, 1), slab);
  ops_.linear(logits, slab);
}

RmsNormArgs LayerOps::norm(UnitId unit, std::size_t tensor, const Weights& slab, const void* x,
                           void* out, std::uint32_t rows) const {
  return {.x = x,
          .weight = data_of(unit, tensor, slab),
          .weight_type = weights_.spec(unit).tensors[tensor].dtype,
          .out = out,
          .type = type_,
          .rows = rows,
          .cols = hidden_size(),
          .eps = static_cast<float>(config_.rms_eps)};
}

const std::byte* LayerOps::data_of(UnitId unit, std::size_t tensor, const Weights& slab) const {
  return slab.data + weights_.layout().place(unit, tensor, slab.encoding).data;
}

LinearArgs LayerOps::matrix(UnitId unit, std::size_t tensor, Position bias, const Weights& slab,
                            std::uint32_t rows, std::uint32_t n, std::uint32_t k) const {
  const auto& tensors = weights_.spec(unit).tensors;
  LinearArgs args{.weight = data_of(unit, tensor, slab),
                  .weight_type = tensors[tensor].dtype,
                  .type = type_,
                  .rows = rows,
                  .n = n,
                  .k = k};
  if (const TensorPlace& place = weights_.layout().place(unit, tensor, slab.encoding);
      place.quantised) {
    args.encoding = slab.encoding;
    args.scales = slab.data + place.scales;
  }
  if (bias) {
    args.bias = data_of(unit, *bias, slab);
    args.bias_type = tensors[*bias].dtype;
  }
  return args;
}

}  // namespace sluice
