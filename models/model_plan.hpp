// From a model's shape to its units: which tensors each is made of, and at which position in the
// unit a decoder finds them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/weights/unit_spec.hpp"
#include "models/config.hpp"

namespace sluice {

// The units in the order of one token's walk: embedding, the layers from 0 on, head. A layer is an
// `attention` and an `mlp`, or an `attention` (with the router) and its `expert`s in ascending
// order.
ModelPlan plan_model(const ModelConfig& config);

// Positions in UnitSpec::tensors. Nothing where the model has no such tensor. q, k and v follow
// each other without a gap and have one type: one matrix of q_size + 2 kv_size rows, read from
// `q`; so do their biases, and gate and up: one matrix of 2 x intermediate rows, read from `gate`.
using Position = std::optional<std::size_t>;

// H: hidden, D: head_dim, E: experts of a layer.
struct AttentionTensors {
  std::size_t q, k, v;  // {q_size, H}, {kv_size, H}, {kv_size, H}
  std::size_t o;        // {H, q_size}
  Position router;      // {E, H}, in a layer of experts
  Position q_bias, k_bias, v_bias, o_bias;
  std::size_t input_norm;        // {H}
  Position q_norm, k_norm;       // {D}
  Position post_attention_norm;  // {H}, in a layer of experts: before the router
};
AttentionTensors attention_tensors(const ModelConfig& config, std::int32_t layer);

// I: intermediate.
struct MlpTensors {
  std::size_t gate, up;  // {I, H}, {I, H}
  std::size_t down;      // {H, I}
  Position gate_bias, up_bias, down_bias;
  std::size_t post_attention_norm;  // {H}
};
MlpTensors mlp_tensors(const ModelConfig& config);

// I: the width of one expert.
struct ExpertTensors {
  std::size_t gate, up;  // {I, H}, {I, H}
  std::size_t down;      // {H, I}
};
constexpr ExpertTensors expert_tensors() { return {0, 1, 2}; }

struct EmbeddingTensors {
  std::size_t weight;  // {vocab, H}
};
constexpr EmbeddingTensors embedding_tensors() { return {0}; }

struct HeadTensors {
  std::size_t weight;  // {vocab, H}: lm_head, or the embedding's where they are tied
  std::size_t norm;    // {H}: the last one, applied before
};
constexpr HeadTensors head_tensors() { return {0, 1}; }

// Throws InputError, naming up to three, when a checkpoint holds tensors that the plan does not
// read: its config.json describes another model (fewer layers, no biases). What the reference
// ignores as well is passed over: tables of RoPE frequencies, and lm_head in a tied model.
void check_all_used(const ModelPlan& plan, std::span<const std::string> names,
                    const std::string& checkpoint);

}  // namespace sluice
