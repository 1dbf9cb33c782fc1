#include "models/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/json_node.hpp"
#include "models/model_files.hpp"
#include "models/quantisation_config.hpp"

namespace sluice {
namespace {

// Bounds that keep every product of shapes far inside 64 bits, and 32 bits of one side.
constexpr std::int64_t kMostLayers = 1024;
constexpr std::int64_t kMostHidden = 1 << 17;
constexpr std::int64_t kMostIntermediate = 1 << 20;
constexpr std::int64_t kMostHeads = 1024;
constexpr std::int64_t kMostHeadDim = 1024;
constexpr std::int64_t kMostVocab = 1 << 24;
constexpr std::int64_t kMostPositions = 1 << 30;
constexpr std::int64_t kMostExperts = 1024;

constexpr std::array kArchitectures{
    std::pair{Architecture::llama, std::string_view("LlamaForCausalLM")},
    std::pair{Architecture::qwen2, std::string_view("Qwen2ForCausalLM")},
    std::pair{Architecture::qwen3, std::string_view("Qwen3ForCausalLM")},
    std::pair{Architecture::qwen3_moe, std::string_view("Qwen3MoeForCausalLM")},
};

std::int32_t size_at(const JsonNode& from, const char* key, std::int64_t most) {
  return static_cast<std::int32_t>(from.at(key).integer(1, most));
}

Architecture architecture_of(const JsonNode& config) {
  const nlohmann::json& list = config.at("architectures").raw();
  const bool one = list.is_array() && list.size() == 1 && list[0].is_string();
  if (one) {
    for (const auto& [architecture, name] : kArchitectures) {
      if (list[0].get_ref<const std::string&>() == name) return architecture;
    }
  }
  std::vector<std::string_view> known;
  for (const auto& [architecture, name] : kArchitectures) known.push_back(name);
  throw InputError("{} is {}, one of these is needed: {}", config.where("architectures"),
                   shown(list), fmt::join(known, ", "));
}

DType dtype_of(const JsonNode& config) {
  // Version 4 says torch_dtype; where both stand, the newer name counts.
  const char* key = config.has("dtype") || !config.has("torch_dtype") ? "dtype" : "torch_dtype";
  if (!config.has(key)) throw InputError("{} is missing (or torch_dtype)", config.where(key));
  const std::string name = config.at(key).string();
  if (name == "float32") return DType::f32;
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::f16;
  throw InputError("{} is \"{}\", float32, bfloat16 or float16 is needed", config.where(key), name);
}

// How much longer contexts sharpen the attention, as in the YaRN paper (arXiv 2309.00071).
double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

void read_yarn(const JsonNode& from, RopeConfig& rope) {
  constexpr double kMost = 1e6;
  // The paper's 32 and 1 stand for a value that is missing or 0, as in the reference.
  const auto beta = [&](const char* key, double otherwise) {
    const double value = from.has(key) ? from.at(key).number(0, kMost) : 0;
    return value == 0 ? otherwise : value;
  };
  rope.beta_fast = beta("beta_fast", 32);
  rope.beta_slow = beta("beta_slow", 1);
  if (rope.beta_fast < rope.beta_slow) {
    throw InputError("{} is {}, at least beta_slow, {}, is needed", from.where("beta_fast"),
                     rope.beta_fast, rope.beta_slow);
  }
  if (from.has("truncate")) rope.truncate = from.at("truncate").boolean();
  if (from.has("attention_factor")) {
    rope.attention_factor = from.at("attention_factor").number(0, kMost);
    return;
  }
  const double scale = from.has("mscale") ? from.at("mscale").number(0, kMost) : 0;
  const double all = from.has("mscale_all_dim") ? from.at("mscale_all_dim").number(0, kMost) : 0;
  rope.attention_factor =
      scale != 0 && all != 0 ? yarn_magnitude(rope.factor, scale) / yarn_magnitude(rope.factor, all)
                             : yarn_magnitude(rope.factor, 1);
}

void read_llama3(const JsonNode& from, RopeConfig& rope) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  rope.low_freq_factor = from.at("low_freq_factor").number(kLeast, kMost);
  rope.high_freq_factor = from.at("high_freq_factor").number(kLeast, kMost);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    throw InputError("{} is {}, more than low_freq_factor, {}, is needed",
                     from.where("high_freq_factor"), rope.high_freq_factor, rope.low_freq_factor);
  }
}

RopeType rope_type_of(const JsonNode& from) {
  const char* key = from.has("rope_type") || !from.has("type") ? "rope_type" : "type";
  if (!from.has(key)) return RopeType::standard;
  const std::string name = from.at(key).string();
  if (name == "default") return RopeType::standard;
  if (name == "linear") return RopeType::linear;
  if (name == "yarn") return RopeType::yarn;
  if (name == "llama3") return RopeType::llama3;
  throw InputError("{} is \"{}\", one of these is needed: default, linear, yarn, llama3",
                   from.where(key), name);
}

// `config`: the file's outermost object.
RopeConfig read_rope(const JsonNode& config) {
  constexpr double kMostTheta = 1e15, kMostFactor = 1e6;
  const nlohmann::json none = nlohmann::json::object();
  const char* name = config.has("rope_scaling") || !config.has("rope_parameters")
                         ? "rope_scaling"
                         : "rope_parameters";
  const JsonNode from = config.has(name) ? config.at(name) : JsonNode(none, config.file(), name);
  RopeConfig rope;
  const JsonNode& theta_from = from.has("rope_theta") ? from : config;
  rope.theta = theta_from.at("rope_theta").number(1 + 1e-6, kMostTheta);
  for (const JsonNode* object : {&from, &config}) {
    if (object->has("partial_rotary_factor") &&
        object->at("partial_rotary_factor").number(0, 1) != 1) {
      throw InputError("{} is not 1: heads that are rotated in part are not supported",
                       object->where("partial_rotary_factor"));
    }
  }
  rope.type = rope_type_of(from);
  if (rope.type == RopeType::standard) return rope;
  rope.factor = from.at("factor").number(1, kMostFactor);
  if (rope.type == RopeType::linear) return rope;
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const JsonNode& original_from = config.has(kOriginal) ? config : from;
  rope.original_positions =
      static_cast<double>(original_from.at(kOriginal).integer(1, kMostPositions));
  rope.type == RopeType::yarn ? read_yarn(from, rope) : read_llama3(from, rope);
  return rope;
}

ExpertConfig read_experts(const JsonNode& config, std::int32_t layers) {
  ExpertConfig experts;
  const char* count = config.has("num_local_experts") ? "num_local_experts" : "num_experts";
  experts.count = size_at(config, count, kMostExperts);
  experts.per_token = size_at(config, "num_experts_per_tok", experts.count);
  experts.intermediate = size_at(config, "moe_intermediate_size", kMostIntermediate);
  experts.normalise = config.at("norm_topk_prob").boolean();
  experts.sparse_step = size_at(config, "decoder_sparse_step", kMostLayers);
  // The list is empty in most checkpoints, and null or left out means the same.
  if (!config.has("mlp_only_layers")) return experts;
  const nlohmann::json& list = config.at("mlp_only_layers").raw();
  const auto is_layer = [&](const nlohmann::json& l) {
    return l.is_number_integer() && l >= 0 && l < layers;
  };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_layer)) {
    throw InputError("{} is {}, a list of layers from 0 to {} is needed",
                     config.where("mlp_only_layers"), shown(list), layers - 1);
  }
  experts.dense_layers = list.get<std::vector<std::int32_t>>();
  std::sort(experts.dense_layers.begin(), experts.dense_layers.end());
  return experts;
}

// Reads what decides the heads' shapes. `model` knows its architecture and hidden size.
void read_heads(const JsonNode& config, ModelConfig& model) {
  model.heads = size_at(config, "num_attention_heads", kMostHeads);
  model.kv_heads = size_at(config, "num_key_value_heads", model.heads);
  if (model.heads % model.kv_heads != 0) {
    throw InputError("{} is {}, a divisor of num_attention_heads, {}, is needed",
                     config.where("num_key_value_heads"), model.kv_heads, model.heads);
  }
  // These two classes derive it where it is not given; in Qwen3 it is a size of its own.
  const bool derives =
      model.architecture == Architecture::llama || model.architecture == Architecture::qwen2;
  if (config.has("head_dim") || !derives) {
    model.head_dim = size_at(config, "head_dim", kMostHeadDim);
  } else if (model.hidden % model.heads != 0) {
    throw InputError(
        "{} is missing, and hidden_size, {}, is not a multiple of "
        "num_attention_heads, {}",
        config.where("head_dim"), model.hidden, model.heads);
  } else {
    model.head_dim = model.hidden / model.heads;
  }
  if (model.head_dim % 2 != 0 || model.head_dim > kMostHeadDim) {
    throw InputError("{} is {}, an even number from 2 to {} is needed", config.where("head_dim"),
                     model.head_dim, kMostHeadDim);
  }
}

// Biases. Llama checkpoints older than these switches leave them out, and have no biases.
void read_biases(const JsonNode& config, ModelConfig& model) {
  switch (model.architecture) {
    case Architecture::llama:
      model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
      model.mlp_bias = config.boolean_or("mlp_bias", false);
      break;
    case Architecture::qwen2: model.qkv_bias = true; break;
    case Architecture::qwen3:
    case Architecture::qwen3_moe:
      model.qkv_bias = model.o_bias = config.at("attention_bias").boolean();
      break;
  }
}

void refuse_what_is_not_followed(const JsonNode& config, std::int32_t layers) {
  if (const std::string act = config.at("hidden_act").string(); act != "silu") {
    throw InputError("{} is \"{}\", silu is needed", config.where("hidden_act"), act);
  }
  if (config.boolean_or("use_sliding_window", false)) {
    throw InputError("{} is true: sliding windows are not supported",
                     config.where("use_sliding_window"));
  }
  if (!config.has("layer_types")) return;
  const nlohmann::json& types = config.at("layer_types").raw();
  if (!types.is_array() || types.size() != static_cast<std::size_t>(layers)) {
    throw InputError("{} is {}, a list of num_hidden_layers, {}, names is needed",
                     config.where("layer_types"), shown(types), layers);
  }
  for (std::size_t l = 0; l < types.size(); ++l) {
    if (types[l] != "full_attention") {
      throw InputError("{}[{}] is {}, only full_attention is supported",
                       config.where("layer_types"), l, shown(types[l]));
    }
  }
}

}  // namespace

std::string_view name_of(Architecture architecture) {
  for (const auto& [known, name] : kArchitectures) {
    if (known == architecture) return name;
  }
  return "?";
}

bool ModelConfig::has_experts(std::int32_t layer) const {
  return experts.count > 0 && (layer + 1) % experts.sparse_step == 0 &&
         !std::binary_search(experts.dense_layers.begin(), experts.dense_layers.end(), layer);
}

ModelConfig parse_model_config(std::string_view text, const std::string& file) {
  const nlohmann::json parsed = parse_json(text, file);
  const JsonNode config(parsed, file);
  ModelConfig model;
  model.architecture = architecture_of(config);
  model.hidden = size_at(config, "hidden_size", kMostHidden);
  model.intermediate = size_at(config, "intermediate_size", kMostIntermediate);
  model.layers = size_at(config, "num_hidden_layers", kMostLayers);
  model.vocab = size_at(config, "vocab_size", kMostVocab);
  model.max_positions = size_at(config, "max_position_embeddings", kMostPositions);
  model.rms_eps = config.at("rms_norm_eps").number(1e-12, 1);
  model.tie_embeddings = config.at("tie_word_embeddings").boolean();
  read_heads(config, model);
  read_biases(config, model);
  refuse_what_is_not_followed(config, model.layers);
  model.qk_norm =
      model.architecture == Architecture::qwen3 || model.architecture == Architecture::qwen3_moe;
  model.rope = read_rope(config);
  model.dtype = dtype_of(config);
  model.quantisation = read_quantisation(config);
  if (model.architecture == Architecture::qwen3_moe) {
    model.experts = read_experts(config, model.layers);
  }
  return model;
}

ModelConfig load_model_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kConfigName;
  return parse_model_config(read_file(path, kLargestModelFile), path.string());
}

}  // namespace sluice
