#include "models/model_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "core/error.hpp"
#include "models/sizes.hpp"

namespace sluice {
namespace {

// The order of tensors within a unit, written once: positions and specs both come from it.
class UnitBuilder {
 public:
  UnitBuilder(UnitKind kind, std::int32_t layer, std::int32_t expert = -1) {
    unit_.kind = kind;
    unit_.layer = layer;
    unit_.expert = expert;
  }
  std::size_t add(std::string name, std::vector<std::uint64_t> shape, bool joined = false) {
    TensorSpec tensor;
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    tensor.joined = joined;
    unit_.tensors.push_back(std::move(tensor));
    return unit_.tensors.size() - 1;
  }
  // One that may be quantised.
  std::size_t add_matrix(std::string name, std::uint64_t out, std::uint64_t in,
                         bool joined = false) {
    const std::size_t at = add(std::move(name), {out, in}, joined);
    unit_.tensors[at].is_matrix = true;
    return at;
  }
  Position add_if(bool present, std::string name, std::vector<std::uint64_t> shape,
                  bool joined = false) {
    if (!present) return std::nullopt;
    return add(std::move(name), std::move(shape), joined);
  }
  UnitSpec take() { return std::move(unit_); }

 private:
  UnitSpec unit_;
};

std::string layer_name(std::int32_t layer) { return fmt::format("model.layers.{}.", layer); }

std::pair<UnitSpec, AttentionTensors> build_attention(const ModelConfig& c, std::int32_t layer) {
  UnitBuilder unit(UnitKind::attention, layer);
  const std::string at = layer_name(layer), self = at + "self_attn.";
  const std::uint64_t hidden = wide(c.hidden), q = wide(c.q_size()), kv = wide(c.kv_size());
  const bool experts = c.has_experts(layer);
  AttentionTensors t{};
  t.q = unit.add_matrix(self + "q_proj.weight", q, hidden);
  t.k = unit.add_matrix(self + "k_proj.weight", kv, hidden, true);
  t.v = unit.add_matrix(self + "v_proj.weight", kv, hidden, true);
  t.o = unit.add_matrix(self + "o_proj.weight", hidden, q);
  t.router = unit.add_if(experts, at + "mlp.gate.weight", {wide(c.experts.count), hidden});
  t.q_bias = unit.add_if(c.qkv_bias, self + "q_proj.bias", {q});
  t.k_bias = unit.add_if(c.qkv_bias, self + "k_proj.bias", {kv}, true);
  t.v_bias = unit.add_if(c.qkv_bias, self + "v_proj.bias", {kv}, true);
  t.o_bias = unit.add_if(c.o_bias, self + "o_proj.bias", {hidden});
  t.input_norm = unit.add(at + "input_layernorm.weight", {hidden});
  t.q_norm = unit.add_if(c.qk_norm, self + "q_norm.weight", {wide(c.head_dim)});
  t.k_norm = unit.add_if(c.qk_norm, self + "k_norm.weight", {wide(c.head_dim)});
  t.post_attention_norm = unit.add_if(experts, at + "post_attention_layernorm.weight", {hidden});
  return {unit.take(), t};
}

std::pair<UnitSpec, MlpTensors> build_mlp(const ModelConfig& c, std::int32_t layer) {
  UnitBuilder unit(UnitKind::mlp, layer);
  const std::string at = layer_name(layer), mlp = at + "mlp.";
  const std::uint64_t hidden = wide(c.hidden), width = wide(c.intermediate);
  MlpTensors t{};
  t.gate = unit.add_matrix(mlp + "gate_proj.weight", width, hidden);
  t.up = unit.add_matrix(mlp + "up_proj.weight", width, hidden, true);
  t.down = unit.add_matrix(mlp + "down_proj.weight", hidden, width);
  t.gate_bias = unit.add_if(c.mlp_bias, mlp + "gate_proj.bias", {width});
  t.up_bias = unit.add_if(c.mlp_bias, mlp + "up_proj.bias", {width}, true);
  t.down_bias = unit.add_if(c.mlp_bias, mlp + "down_proj.bias", {hidden});
  t.post_attention_norm = unit.add(at + "post_attention_layernorm.weight", {hidden});
  return {unit.take(), t};
}

UnitSpec build_expert(const ModelConfig& c, std::int32_t layer, std::int32_t expert) {
  UnitBuilder unit(UnitKind::expert, layer, expert);
  const std::string at = fmt::format("{}mlp.experts.{}.", layer_name(layer), expert);
  const std::uint64_t hidden = wide(c.hidden), width = wide(c.experts.intermediate);
  unit.add_matrix(at + "gate_proj.weight", width, hidden);
  unit.add_matrix(at + "up_proj.weight", width, hidden, true);
  unit.add_matrix(at + "down_proj.weight", hidden, width);
  return unit.take();
}

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

UnitSpec build_embedding(const ModelConfig& c) {
  UnitBuilder unit(UnitKind::embedding, 0);
  unit.add(kEmbedding, {wide(c.vocab), wide(c.hidden)});
  return unit.take();
}

UnitSpec build_head(const ModelConfig& c) {
  UnitBuilder unit(UnitKind::head, c.layers);
  unit.add_matrix(c.tie_embeddings ? kEmbedding : kHead, wide(c.vocab), wide(c.hidden));
  unit.add("model.norm.weight", {wide(c.hidden)});
  return unit.take();
}

}  // namespace

ModelPlan plan_model(const ModelConfig& config) {
  ModelPlan plan;
  plan.layers = config.layers;
  plan.units.push_back(build_embedding(config));
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    plan.units.push_back(build_attention(config, layer).first);
    if (!config.has_experts(layer)) {
      plan.units.push_back(build_mlp(config, layer).first);
      continue;
    }
    plan.experts_per_layer = config.experts.count;
    plan.experts_per_token = config.experts.per_token;
    for (std::int32_t expert = 0; expert < config.experts.count; ++expert) {
      plan.units.push_back(build_expert(config, layer, expert));
    }
  }
  plan.units.push_back(build_head(config));
  if (config.tie_embeddings) plan.units[0].shares = static_cast<UnitId>(plan.units.size() - 1);
  return plan;
}

AttentionTensors attention_tensors(const ModelConfig& config, std::int32_t layer) {
  return build_attention(config, layer).second;
}

MlpTensors mlp_tensors(const ModelConfig& config) { return build_mlp(config, 0).second; }

void check_all_used(const ModelPlan& plan, std::span<const std::string> names,
                    const std::string& checkpoint) {
  std::unordered_set<std::string_view> used;
  for (const UnitSpec& unit : plan.units) {
    for (const TensorSpec& tensor : unit.tensors) used.insert(tensor.name);
  }
  if (plan.units[0].shares) used.insert(kHead);
  std::vector<std::string_view> surplus;
  for (const std::string& name : names) {
    if (!used.contains(name) && !name.ends_with("rotary_emb.inv_freq")) surplus.push_back(name);
  }
  if (surplus.empty()) return;
  std::sort(surplus.begin(), surplus.end());
  const std::size_t shown = std::min<std::size_t>(surplus.size(), 3);
  throw InputError(
      "{}: holds {} tensors that the model in its config.json does not have: {}{}; "
      "layers, biases or experts in config.json are not those of the checkpoint",
      checkpoint, surplus.size(),
      fmt::join(surplus.begin(), surplus.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < surplus.size() ? ", ..." : "");
}

}  // namespace sluice
