// config.json in both styles: what it means, and each way in which it may be wrong.
#include "models/config.hpp"

#include <cmath>

#include "tests/weights/helpers.hpp"

using namespace sluice;
using namespace sluice::test;
using nlohmann::json;

namespace {

json config_json(const std::string& name) {
  return json::parse(bytes_of(data_dir() / "configs" / (name + ".json")));
}

ModelConfig parse(const json& config) {
  return parse_model_config(config.dump(), "DIR/config.json");
}

std::string refused(const json& config) {
  const std::string message = input_error([&] { parse(config); });
  CHECK(contains(message, "DIR/config.json"));
  return message;
}

std::string refused_with(json config, const char* key, const json& value) {
  config[key] = value;
  const std::string message = refused(config);
  CHECK(contains(message, key));
  return message;
}

// The same in the style of version 5.
json as_version_5(json config) {
  json rope = config.value("rope_scaling", json()).is_null() ? json{{"rope_type", "default"}}
                                                             : config["rope_scaling"];
  rope["rope_theta"] = config["rope_theta"];
  config["rope_parameters"] = rope;
  config["dtype"] = config["torch_dtype"];
  config["layer_types"] =
      json(config["num_hidden_layers"].get<std::size_t>(), json("full_attention"));
  if (config.contains("num_experts")) config["num_local_experts"] = config["num_experts"];
  for (const char* old : {"rope_scaling", "rope_theta", "torch_dtype", "num_experts"}) {
    config.erase(old);
  }
  return config;
}

// All that a config says, as text.
std::string all_of(const ModelConfig& c) {
  const RopeConfig& r = c.rope;
  const ExpertConfig& e = c.experts;
  std::string text =
      fmt::format("{} h{} i{} l{} heads{}/{}x{} v{} p{} eps{} tie{} bias{}{}{} qk{} {} ",
                  name_of(c.architecture), c.hidden, c.intermediate, c.layers, c.heads, c.kv_heads,
                  c.head_dim, c.vocab, c.max_positions, c.rms_eps, c.tie_embeddings, c.qkv_bias,
                  c.o_bias, c.mlp_bias, c.qk_norm, name_of(c.dtype));
  text += fmt::format("rope {} {} f{} o{} {} {} b{} {} {} a{} ", static_cast<int>(r.type), r.theta,
                      r.factor, r.original_positions, r.low_freq_factor, r.high_freq_factor,
                      r.beta_fast, r.beta_slow, r.truncate, r.attention_factor);
  text += fmt::format("experts {} {} {} {} {} {}", e.count, e.per_token, e.intermediate,
                      e.normalise, e.sparse_step, e.dense_layers.size());
  return text;
}

}  // namespace

TEST_CASE("real checkpoints' configs load") {
  ModelConfig c = parse(config_json("smollm2-135m"));
  CHECK(all_of(c) ==
        "LlamaForCausalLM h576 i1536 l30 heads9/3x64 v49152 p8192 eps1e-05 tietrue "
        "biasfalsefalsefalse qkfalse bf16 "
        "rope 0 100000 f1 o0 0 0 b0 0 true a1 experts 0 0 0 false 0 0");
  c = parse(config_json("llama-3.2-1b"));
  CHECK(all_of(c) ==
        "LlamaForCausalLM h2048 i8192 l16 heads32/8x64 v128256 p131072 eps1e-05 "
        "tietrue biasfalsefalsefalse qkfalse bf16 "
        "rope 3 500000 f32 o8192 1 4 b0 0 true a1 experts 0 0 0 false 0 0");
  c = parse(config_json("llama-old"));
  CHECK(all_of(c) ==
        "LlamaForCausalLM h2048 i5632 l22 heads32/4x64 v32000 p2048 eps1e-05 "
        "tiefalse biasfalsefalsefalse qkfalse f16 "
        "rope 0 10000 f1 o0 0 0 b0 0 true a1 experts 0 0 0 false 0 0");
  c = parse(config_json("qwen2.5-0.5b"));
  CHECK(all_of(c) ==
        "Qwen2ForCausalLM h896 i4864 l24 heads14/2x64 v151936 p32768 eps1e-06 "
        "tietrue biastruefalsefalse qkfalse bf16 "
        "rope 0 1000000 f1 o0 0 0 b0 0 true a1 experts 0 0 0 false 0 0");
  c = parse(config_json("qwen3-8b"));
  CHECK(all_of(c) ==
        "Qwen3ForCausalLM h4096 i12288 l36 heads32/8x128 v151936 p40960 eps1e-06 "
        "tiefalse biasfalsefalsefalse qktrue bf16 "
        "rope 0 1000000 f1 o0 0 0 b0 0 true a1 experts 0 0 0 false 0 0");
  CHECK(c.q_size() == 4096);
  CHECK(c.kv_size() == 1024);
  c = parse(config_json("qwen3-30b-a3b"));
  CHECK(all_of(c) ==
        "Qwen3MoeForCausalLM h2048 i6144 l48 heads32/4x128 v151936 p40960 eps1e-06 "
        "tiefalse biasfalsefalsefalse qktrue bf16 "
        "rope 0 1000000 f1 o0 0 0 b0 0 true a1 experts 128 8 768 true 1 0");
}

TEST_CASE("fixtures' configs load") {
  for (const std::string& name : fixture_names()) {
    INFO(name);
    const ModelConfig c = load_model_config(fixture(name));
    CHECK(c.hidden == 64);
    CHECK(c.vocab == 320);
  }
  CHECK(load_model_config(fixture("qwen3-tiny-f32")).dtype == DType::f32);
  CHECK(load_model_config(fixture("qwen3-tiny-f16")).dtype == DType::f16);
  const ModelConfig llama = load_model_config(fixture("llama-tiny"));
  CHECK(llama.rope.type == RopeType::llama3);
  CHECK(llama.rope.original_positions == 64);
  const ModelConfig yarn = load_model_config(fixture("qwen3-tiny-yarn"));
  CHECK(yarn.rope.type == RopeType::yarn);
  CHECK(yarn.rope.attention_factor == Approx(1.1386294361119891).epsilon(1e-14));
}

TEST_CASE("both styles of config mean the same") {
  for (const char* name :
       {"smollm2-135m", "llama-3.2-1b", "llama-old", "qwen2.5-0.5b", "qwen3-8b", "qwen3-30b-a3b"}) {
    INFO(name);
    json config = config_json(name);
    CHECK(all_of(parse(as_version_5(config))) == all_of(parse(config)));
    // Another mixture that is in use: the scaling apart, theta within.
    json mixed = as_version_5(config);
    mixed["rope_scaling"] = mixed["rope_parameters"];
    mixed.erase("rope_parameters");
    CHECK(all_of(parse(mixed)) == all_of(parse(config)));
  }
}

TEST_CASE("a config without a key that matters is refused by name") {
  const auto check = [](const char* name, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      for (const bool null : {false, true}) {
        INFO(name << " without " << key);
        json config = config_json(name);
        if (null) {
          config[key] = nullptr;
        } else {
          config.erase(key);
        }
        const std::string message = refused(config);
        CHECK(contains(message, "is missing"));
        CHECK(contains(message, key));
      }
    }
  };
  const auto in_all = {"architectures",       "hidden_size",         "intermediate_size",
                       "num_hidden_layers",   "num_attention_heads", "num_key_value_heads",
                       "vocab_size",          "rms_norm_eps",        "max_position_embeddings",
                       "tie_word_embeddings", "hidden_act",          "rope_theta",
                       "torch_dtype"};
  for (const char* name : {"smollm2-135m", "qwen2.5-0.5b", "qwen3-8b", "qwen3-30b-a3b"}) {
    check(name, in_all);
  }
  check("qwen3-8b", {"head_dim", "attention_bias"});
  check("qwen3-30b-a3b", {"head_dim", "attention_bias", "num_experts", "num_experts_per_tok",
                          "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step"});
  json config = as_version_5(config_json("qwen3-8b"));
  config.erase("dtype");
  CHECK(contains(refused(config), "dtype is missing"));
  config = as_version_5(config_json("qwen3-8b"));
  config["rope_parameters"].erase("rope_theta");
  CHECK(contains(refused(config), "rope_theta is missing"));
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    config = config_json("llama-3.2-1b");
    config["rope_scaling"].erase(key);
    CHECK(contains(refused(config), fmt::format("rope_scaling.{} is missing", key)));
    config = as_version_5(config_json("llama-3.2-1b"));
    config["rope_parameters"].erase(key);
    CHECK(contains(refused(config), fmt::format("rope_parameters.{} is missing", key)));
  }
}

TEST_CASE("a config with a value out of range or of the wrong type is refused") {
  const json qwen = config_json("qwen3-8b"), moe = config_json("qwen3-30b-a3b");
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings"}) {
    for (const json& wrong : {json(0), json(-1), json(1ull << 40), json(~0ull), json(2.0),
                              json("8"), json(true), json::array({8}), json::object()}) {
      INFO(key << " = " << wrong);
      CHECK(contains(refused_with(qwen, key, wrong), "an integer from 1 to"));
    }
  }
  for (const char* key :
       {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step"}) {
    for (const json& wrong : {json(0), json(-1), json(1 << 30), json("8")}) {
      CHECK(contains(refused_with(moe, key, wrong), "an integer from 1 to"));
    }
  }
  for (const char* key : {"tie_word_embeddings", "attention_bias", "norm_topk_prob"}) {
    for (const json& wrong : {json(0), json("true"), json::array()}) {
      CHECK(contains(refused_with(moe, key, wrong), "true or false is needed"));
    }
  }
  for (const json& wrong : {json(0), json(-1e-6), json(2), json("1e-6"), json(true)}) {
    CHECK(contains(refused_with(qwen, "rms_norm_eps", wrong), "a number from"));
  }
  for (const json& wrong : {json(0), json(1), json(-10000), json(1e300), json("1e6")}) {
    CHECK(contains(refused_with(qwen, "rope_theta", wrong), "a number from"));
  }
  CHECK(contains(refused_with(qwen, "num_key_value_heads", 5), "a divisor of num_attention_heads"));
  CHECK(contains(refused_with(qwen, "num_key_value_heads", 64), "from 1 to 32"));
  CHECK(contains(refused_with(qwen, "head_dim", 127), "an even number"));
  CHECK(contains(refused_with(moe, "num_experts_per_tok", 129), "from 1 to 128"));
  for (const json& wrong : {json(48), json(-1), json("1"), json(1.0), json(~0ull), json(true)}) {
    CHECK(contains(refused_with(moe, "mlp_only_layers", json::array({wrong})),
                   "layers from 0 to 47"));
  }
  CHECK(contains(refused_with(moe, "mlp_only_layers", 3), "layers from 0 to 47"));
  json llama = config_json("llama-old");
  llama["hidden_size"] = 2049;
  CHECK(
      contains(refused(llama), "hidden_size, 2049, is not a multiple of num_attention_heads, 32"));
  llama["hidden_size"] = 32 * 33;
  CHECK(contains(refused(llama), "head_dim is 33, an even number"));
  llama["hidden_size"] = 1 << 17;
  llama["num_attention_heads"] = llama["num_key_value_heads"] = 1;
  CHECK(contains(refused(llama), "an even number from 2 to 1024"));
}

TEST_CASE("what no kernel follows is refused") {
  const json qwen = config_json("qwen3-8b");
  CHECK(contains(refused_with(qwen, "hidden_act", "gelu"), "silu is needed"));
  CHECK(contains(refused_with(qwen, "use_sliding_window", true), "not supported"));
  CHECK(contains(refused_with(qwen, "torch_dtype", "float64"), "float32, bfloat16 or float16"));
  CHECK(contains(refused_with(qwen, "quantization_config", {{"quant_method", "hqq"}}),
                 "quant_method is \"hqq\", which is not supported; supported are"));
  CHECK(contains(refused_with(qwen, "partial_rotary_factor", 0.5), "is not 1"));
  json types(36, json("full_attention"));
  types[35] = "sliding_attention";
  CHECK(contains(refused_with(qwen, "layer_types", types), "layer_types[35]"));
  CHECK(contains(refused_with(qwen, "layer_types", json(35, json("full_attention"))), "36"));
  CHECK(contains(refused_with(qwen, "layer_types", "full_attention"), "36"));
}

TEST_CASE("an unknown architecture is refused with the known ones") {
  const json qwen = config_json("qwen3-8b");
  for (const json& wrong :
       {json::array({"MistralForCausalLM"}), json::array(), json("Qwen3ForCausalLM"),
        json::array({"Qwen3ForCausalLM", "LlamaForCausalLM"}), json::array({7})}) {
    const std::string message = refused_with(qwen, "architectures", wrong);
    for (const char* known :
         {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"}) {
      CHECK(contains(message, known));
    }
  }
}

TEST_CASE("biases and head_dim follow the class") {
  json config = config_json("smollm2-135m");
  config["attention_bias"] = config["mlp_bias"] = true;
  config["head_dim"] = 32;
  ModelConfig c = parse(config);
  CHECK((c.qkv_bias && c.o_bias && c.mlp_bias));
  CHECK(c.head_dim == 32);
  config = config_json("qwen2.5-0.5b");
  config["attention_bias"] = false;  // the class does not ask
  config["head_dim"] = nullptr;
  c = parse(config);
  CHECK((c.qkv_bias && !c.o_bias && !c.mlp_bias));
  CHECK(c.head_dim == 64);
  config = config_json("qwen3-8b");
  config["attention_bias"] = config["mlp_bias"] = true;
  c = parse(config);
  CHECK((c.qkv_bias && c.o_bias && !c.mlp_bias));
}

TEST_CASE("rope scaling means what the reference makes of it") {
  json config = config_json("qwen3-8b");
  const auto rope = [&](const json& scaling) {
    config["rope_scaling"] = scaling;
    return parse(config).rope;
  };
  const json yarn{{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const auto with = [&](const char* key, const json& value) {
    json changed = yarn;
    changed[key] = value;
    return changed;
  };
  const double magnitude = 0.1 * std::log(4.0) + 1;
  RopeConfig r = rope(yarn);
  CHECK(r.type == RopeType::yarn);
  CHECK(r.factor == 4);
  CHECK(r.original_positions == 32768);
  CHECK(r.beta_fast == 32);
  CHECK(r.beta_slow == 1);
  CHECK(r.truncate);
  CHECK(r.attention_factor == Approx(magnitude).epsilon(1e-15));
  CHECK(rope(with("attention_factor", 1.5)).attention_factor == 1.5);
  CHECK(rope(with("beta_fast", 24)).beta_fast == 24);
  CHECK(rope(with("beta_slow", 2)).beta_slow == 2);
  CHECK(rope(with("beta_slow", 0)).beta_slow == 1);
  CHECK(!rope(with("truncate", false)).truncate);
  CHECK(rope(with("mscale", 2.0)).attention_factor == Approx(magnitude).epsilon(1e-15));
  json both = with("mscale", 2.0);
  both["mscale_all_dim"] = 0.5;
  CHECK(rope(both).attention_factor ==
        Approx((0.2 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1)).epsilon(1e-15));
  CHECK(rope(with("factor", 1)).attention_factor == 1);
  CHECK(rope({{"rope_type", "linear"}, {"factor", 2}}).type == RopeType::linear);
  CHECK(rope({{"rope_type", "default"}}).type == RopeType::standard);
  CHECK(rope({{"rope_type", "default"}, {"rope_theta", 5e5}}).theta == 5e5);
  CHECK(rope(json()).theta == 1e6);

  const auto refused_rope = [&](const json& scaling) {
    config["rope_scaling"] = scaling;
    return refused(config);
  };
  CHECK(contains(refused_rope({{"rope_type", "dynamic"}, {"factor", 2}}),
                 "rope_scaling.rope_type is \"dynamic\", one of these is needed"));
  CHECK(contains(refused_rope({{"type", "su"}}), "rope_scaling.type is \"su\""));
  CHECK(contains(refused_rope({{"rope_type", 3}}), "a string is needed"));
  CHECK(contains(refused_rope(with("factor", 0.5)), "rope_scaling.factor is 0.5"));
  CHECK(contains(refused_rope(with("factor", "4")), "a number from 1"));
  CHECK(contains(refused_rope(with("beta_fast", 0.5)), "at least beta_slow, 1"));
  CHECK(contains(refused_rope(with("original_max_position_embeddings", 0)), "an integer from 1"));
  CHECK(contains(refused_rope(with("partial_rotary_factor", 0.25)), "is not 1"));
  CHECK(contains(refused_rope("yarn"), "rope_scaling is \"yarn\", an object is needed"));
  config = config_json("llama-3.2-1b");
  config["rope_scaling"]["high_freq_factor"] = 1.0;
  CHECK(contains(refused(config), "more than low_freq_factor, 1"));
}

TEST_CASE("layers with experts are those of the step that are not listed as dense") {
  json config = config_json("qwen3-30b-a3b");
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {5, 3};
  const ModelConfig c = parse(config);
  for (std::int32_t layer = 0; layer < 48; ++layer) {
    CHECK(c.has_experts(layer) == (layer % 2 == 1 && layer != 3 && layer != 5));
  }
  CHECK(!parse(config_json("qwen3-8b")).has_experts(1));
}

TEST_CASE("a config that is no JSON object is refused") {
  const auto message = [](std::string_view text) {
    return input_error([&] { parse_model_config(text, "DIR/config.json"); });
  };
  CHECK(contains(message(""), "DIR/config.json:1:1: not JSON"));
  CHECK(contains(message("{\"hidden_size\": 1e999}"), "not JSON"));
  CHECK(contains(message("[]"), "an object is needed"));
  CHECK(contains(message("{\"a\":" + std::string(100'000, '[')), "nested deeper than 64"));
  const ScratchDir dir;
  CHECK(contains(input_error([&] { load_model_config(dir.path()); }), "config.json: no such file"));
  std::filesystem::create_directory(dir.path() / "config.json");
  CHECK(contains(input_error([&] { load_model_config(dir.path()); }), "config.json: not a file"));
  const ScratchDir large;
  spit(large.path() / "config.json", "{");
  std::filesystem::resize_file(large.path() / "config.json", 1ull << 30);
  CHECK(contains(input_error([&] { load_model_config(large.path()); }), "larger than"));
}
