// Units, tensors and bytes of models, against counts made by hand.
#include "models/model_plan.hpp"

#include <numeric>

#include "core/weights/checkpoint.hpp"
#include "core/weights/synthetic.hpp"
#include "core/weights/weight_store.hpp"
#include "models/model_source.hpp"
#include "tests/weights/helpers.hpp"

using namespace sluice;
using namespace sluice::test;

namespace {

ModelSource shape(const std::string& name) {
  return open_model(SyntheticLocation{name, 1}, shapes());
}

// Laid out in bf16 on a device without memory.
WeightStore laid_out(IDevice& device, const ModelSource& model) {
  return WeightStore(device, model.plan, *model.tensors, {DType::bf16, 0, {}});
}

std::uint64_t bytes_of(const WeightStore& store, UnitKind kind, std::int32_t layer) {
  for (const UnitInfo& unit : store.view().units) {
    if (unit.kind == kind && unit.layer == layer) return unit.size(Encoding::native);
  }
  FAIL("no such unit");
  return 0;
}

std::vector<std::string> names(const UnitSpec& unit) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : unit.tensors) names.push_back(tensor.name);
  return names;
}

}  // namespace

TEST_CASE("a dense model is embedding, attention and mlp of each layer, head") {
  const ModelConfig config = load_model_config(fixture("qwen3-tiny"));
  const ModelPlan plan = plan_model(config);
  REQUIRE(plan.units.size() == 12);
  CHECK(plan.layers == 5);
  CHECK(plan.experts_per_layer == 0);
  CHECK(names(plan.units[0]) == std::vector<std::string>{"model.embed_tokens.weight"});
  CHECK(!plan.units[0].shares);
  for (std::int32_t layer = 0; layer < 5; ++layer) {
    const UnitSpec& attention = plan.units[1 + 2 * layer];
    CHECK(attention.kind == UnitKind::attention);
    CHECK(attention.layer == layer);
    const std::string at = fmt::format("model.layers.{}.", layer);
    CHECK(names(attention) ==
          std::vector<std::string>{at + "self_attn.q_proj.weight", at + "self_attn.k_proj.weight",
                                   at + "self_attn.v_proj.weight", at + "self_attn.o_proj.weight",
                                   at + "input_layernorm.weight", at + "self_attn.q_norm.weight",
                                   at + "self_attn.k_norm.weight"});
    const UnitSpec& mlp = plan.units[2 + 2 * layer];
    CHECK(mlp.kind == UnitKind::mlp);
    CHECK(names(mlp) == std::vector<std::string>{
                            at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight",
                            at + "mlp.down_proj.weight", at + "post_attention_layernorm.weight"});
  }
  const UnitSpec& head = plan.units[11];
  CHECK(head.kind == UnitKind::head);
  CHECK(head.layer == 5);
  CHECK(names(head) == std::vector<std::string>{"lm_head.weight", "model.norm.weight"});
}

TEST_CASE("positions point at the tensors that they are named for") {
  ModelConfig config = load_model_config(fixture("qwen3moe-tiny"));
  config.qkv_bias = config.o_bias = config.mlp_bias = true;
  const ModelPlan plan = plan_model(config);
  std::int32_t checked = 0;
  for (const UnitSpec& unit : plan.units) {
    const auto is = [&](Position at, const char* end) {
      REQUIRE(at);
      CHECK(contains(unit.tensors.at(*at).name, end));
    };
    if (unit.kind == UnitKind::attention) {
      const AttentionTensors t = attention_tensors(config, unit.layer);
      is(t.q, "q_proj.weight");
      is(t.k, "k_proj.weight");
      is(t.v, "v_proj.weight");
      is(t.o, "o_proj.weight");
      is(t.q_bias, "q_proj.bias");
      is(t.k_bias, "k_proj.bias");
      is(t.v_bias, "v_proj.bias");
      is(t.o_bias, "o_proj.bias");
      is(t.input_norm, "input_layernorm");
      is(t.q_norm, "q_norm");
      is(t.k_norm, "k_norm");
      CHECK(t.router.has_value() == (unit.layer != 1));
      if (t.router) is(t.router, "mlp.gate.weight");
      if (t.router) is(t.post_attention_norm, "post_attention_layernorm");
      CHECK((unit.tensors[t.k].joined && unit.tensors[t.v].joined));
      CHECK((unit.tensors[*t.k_bias].joined && unit.tensors[*t.v_bias].joined));
      CHECK((!unit.tensors[t.q].joined && !unit.tensors[t.o].joined));
    } else if (unit.kind == UnitKind::mlp) {
      const MlpTensors t = mlp_tensors(config);
      is(t.gate, "gate_proj.weight");
      is(t.up, "up_proj.weight");
      is(t.down, "down_proj.weight");
      is(t.gate_bias, "gate_proj.bias");
      is(t.up_bias, "up_proj.bias");
      is(t.down_bias, "down_proj.bias");
      is(t.post_attention_norm, "post_attention_layernorm");
      CHECK((unit.tensors[t.up].joined && unit.tensors[*t.up_bias].joined));
    } else if (unit.kind == UnitKind::expert) {
      is(expert_tensors().gate, "gate_proj.weight");
      is(expert_tensors().up, "up_proj.weight");
      is(expert_tensors().down, "down_proj.weight");
    } else if (unit.kind == UnitKind::embedding) {
      is(embedding_tensors().weight, "embed_tokens");
    } else {
      is(head_tensors().weight, "lm_head");
      is(head_tensors().norm, "model.norm");
    }
    ++checked;
  }
  // Five attentions, one dense mlp, four layers of 16 experts, embedding and head.
  CHECK(checked == 5 + 1 + 4 * 16 + 2);
  const ModelConfig llama = load_model_config(fixture("llama-tiny"));
  CHECK((!attention_tensors(llama, 0).q_norm && !attention_tensors(llama, 0).q_bias));
  CHECK(!mlp_tensors(llama).gate_bias);
}

TEST_CASE("a model of experts has them in ascending order behind their attention") {
  const ModelPlan plan = plan_model(load_model_config(fixture("qwen3moe-tiny-nonorm")));
  CHECK(plan.experts_per_layer == 16);
  CHECK(plan.experts_per_token == 4);
  REQUIRE(plan.units.size() == 2 + 4 + 2 + 2 * 16);  // layers 1 and 3 have experts
  CHECK(plan.units[2].kind == UnitKind::mlp);
  CHECK(plan.units[3].layer == 1);
  for (int e = 0; e < 16; ++e) {
    CHECK(plan.units[4 + e].kind == UnitKind::expert);
    CHECK(plan.units[4 + e].expert == e);
    CHECK(plan.units[4 + e].tensors[0].name ==
          fmt::format("model.layers.1.mlp.experts.{}.gate_proj.weight", e));
  }
}

TEST_CASE("units of Qwen3-8B have the bytes counted by hand") {
  MemoryDevice device(false);
  const WeightStore store = laid_out(device, shape("qwen3-8b"));
  // q 4096 x 4096, k and v 1024 x 4096, o 4096 x 4096, norms 4096 and twice 128; two bytes each.
  CHECK(bytes_of(store, UnitKind::attention, 17) == 83'894'784);
  // gate, up and down 12288 x 4096, norm 4096.
  CHECK(bytes_of(store, UnitKind::mlp, 17) == 301'998'080);
  CHECK(bytes_of(store, UnitKind::embedding, 0) == 151'936ull * 4096 * 2);
  CHECK(bytes_of(store, UnitKind::head, 36) == 151'936ull * 4096 * 2 + 4096 * 2);
  // All of these are multiples of 256: no gaps.
  CHECK(store.pinned_bytes() ==
        36 * (83'894'784ull + 301'998'080ull) + 1'244'659'712ull + 1'244'667'904ull);
  CHECK(device.memory_use().pinned_bytes == 16'381'470'720ull);
  const ModelView view = store.view();
  CHECK(view.units.size() == 74);
  CHECK(view.order.size() == 72);
  CHECK(view.layers == 36);
  for (std::size_t i = 0; i < view.order.size(); ++i) CHECK(view.order[i] == i + 1);
}

TEST_CASE("units of Qwen3-30B-A3B have the bytes counted by hand") {
  MemoryDevice device(false);
  const WeightStore store = laid_out(device, shape("qwen3-30b-a3b"));
  CHECK(bytes_of(store, UnitKind::expert, 0) == 3 * 768 * 2048 * 2);
  // q and o 4096 x 2048, k and v 512 x 2048, router 128 x 2048, norms twice 2048 and twice 128.
  CHECK(bytes_of(store, UnitKind::attention, 47) ==
        2 * (2 * 4096 * 2048 + 2 * 512 * 2048 + 128 * 2048 + 2 * 2048 + 2 * 128));
  CHECK(store.view().units.size() == 2 + 48 * 129);
  CHECK(store.view().experts_per_layer == 128);
  CHECK(store.view().experts_per_token == 8);
}

TEST_CASE("shapes hold the parameters that the models are named for") {
  // Parameters from the table of layers, a tied embedding once.
  const auto parameters = [](const std::string& name) {
    const ModelSource model = shape(name);
    std::uint64_t n = 0;
    for (const UnitSpec& unit : model.plan.units) {
      if (unit.shares) continue;
      for (const TensorSpec& tensor : unit.tensors) n += tensor.elements();
    }
    return n;
  };
  CHECK(parameters("qwen3-0.6b") == 596'049'920);
  CHECK(parameters("qwen3-1.7b") == 1'720'574'976);
  CHECK(parameters("qwen3-4b") == 4'022'468'096);
  CHECK(parameters("qwen3-8b") == 8'190'735'360);
  CHECK(parameters("qwen3-14b") == 14'768'307'200);
  CHECK(parameters("qwen3-32b") == 32'762'123'264);
  CHECK(parameters("qwen3-30b-a3b") == 30'532'122'624);
  CHECK(shape("qwen3-8b").config.max_positions == 40960);
  CHECK(shape("qwen3-8b").config.rope.theta == 1e6);
  CHECK(known_shapes(shapes()).size() == 11);
}

TEST_CASE("a tied embedding is the head's matrix and costs nothing") {
  const ModelSource model =
      open_model(CheckpointLocation{fixture("qwen3-tiny-tied-sharded")}, shapes());
  const auto head = static_cast<UnitId>(model.plan.units.size() - 1);
  CHECK(model.plan.units[0].shares == head);
  CHECK(names(model.plan.units[head])[0] == "model.embed_tokens.weight");
  MemoryDevice device;
  const WeightStore store = laid_out(device, model);
  CHECK(store.slab(0, Encoding::native) == store.slab(head, Encoding::native));
  CHECK(store.view().units[0].size(Encoding::native) == 320 * 64 * 2);
  std::uint64_t streamed_and_head = 0;
  for (const UnitInfo& unit : store.view().units) {
    if (unit.id != 0) streamed_and_head += (unit.size(Encoding::native) + 255) / 256 * 256;
  }
  CHECK(store.pinned_bytes() > streamed_and_head - 256);
  CHECK(store.pinned_bytes() <= streamed_and_head);
}

TEST_CASE("a checkpoint that is not its config's model is refused") {
  const ScratchDir dir;
  const auto with_config = [&](const char* key, const nlohmann::json& value) {
    auto config = nlohmann::json::parse(bytes_of(fixture("qwen3-tiny") / "config.json"));
    config[key] = value;
    spit(dir.path() / "config.json", config.dump());
    std::filesystem::copy_file(fixture("qwen3-tiny") / "model.safetensors",
                               dir.path() / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    return input_error([&] { open_model(CheckpointLocation{dir.path()}, shapes()); });
  };
  CHECK(contains(with_config("num_hidden_layers", 4), "holds 11 tensors that the model"));
  CHECK(contains(with_config("num_hidden_layers", 6), "no tensor model.layers.5."));
  CHECK(contains(with_config("attention_bias", true),
                 "no tensor model.layers.0.self_attn.q_proj.bias"));
  CHECK(contains(with_config("head_dim", 64), "q_proj.weight has the shape [128, 64], [256, 64]"));
  CHECK(contains(with_config("architectures", nlohmann::json::array({"LlamaForCausalLM"})),
                 "model.layers.0.self_attn.k_norm.weight"));
  // A tied model may carry a head all the same.
  auto config = nlohmann::json::parse(bytes_of(fixture("qwen3-tiny") / "config.json"));
  config["tie_word_embeddings"] = true;
  spit(dir.path() / "config.json", config.dump());
  CHECK(open_model(CheckpointLocation{dir.path()}, shapes()).plan.units[0].shares);
  CHECK(
      contains(input_error([&] { open_model(CheckpointLocation{dir.path() / "none"}, shapes()); }),
               "no such model directory"));
}

TEST_CASE("an unknown shape is refused with the nearest") {
  const std::string message = input_error([] { shape("qwen3-8B"); });
  CHECK(contains(message, "qwen3-8B"));
  CHECK(contains(message, "qwen3-8b"));
  CHECK(contains(input_error([] { shape("../models/qwen3-8b"); }), "no model shape"));
  CHECK(contains(input_error([] {
                   open_model(SyntheticLocation{"x", 1}, "/nowhere");
                 }),
                 "/nowhere"));
}
