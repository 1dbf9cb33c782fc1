// A model's shape and switches, from the `config.json` of a Hugging Face checkpoint, in the style
// of version 4 (rope_theta, rope_scaling, torch_dtype, num_experts) or of version 5
// (rope_parameters, dtype, layer_types, num_local_experts).
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "core/weights/quantised_format.hpp"

namespace sluice {

enum class Architecture : std::uint8_t { llama, qwen2, qwen3, qwen3_moe };

// The class name that config.json gives it: "Qwen3ForCausalLM".
std::string_view name_of(Architecture architecture);

enum class RopeType : std::uint8_t { standard, linear, yarn, llama3 };

// Rotary position embedding. Every field that `type` reads is set; the others are as below.
struct RopeConfig {
  RopeType type = RopeType::standard;
  double theta = 0;                     // the base of the frequencies
  double factor = 1;                    // linear, yarn, llama3: how far positions are stretched
  double original_positions = 0;        // yarn, llama3: positions the model was first trained on
  double low_freq_factor = 0;           // llama3
  double high_freq_factor = 0;          // llama3
  double beta_fast = 0, beta_slow = 0;  // yarn: rotations between which frequencies are blended
  bool truncate = true;                 // yarn: the blend's bounds are whole dimensions
  double attention_factor = 1;          // cos and sin are multiplied by it
};

// Layers with experts in place of an MLP. All zero in a dense model.
struct ExpertConfig {
  std::int32_t count = 0;         // of a layer
  std::int32_t per_token = 0;     // chosen by the router
  std::int32_t intermediate = 0;  // width of one
  bool normalise = false;         // the chosen weights are scaled to sum to 1
  std::int32_t sparse_step = 0;   // layer l has experts when (l + 1) % sparse_step == 0 ...
  std::vector<std::int32_t> dense_layers;  // ... and l is not here; ascending
};

struct ModelConfig {
  Architecture architecture = Architecture::qwen3;
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;  // width of a dense layer's MLP
  std::int32_t layers = 0;
  std::int32_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int32_t vocab = 0;
  std::int32_t max_positions = 0;
  double rms_eps = 0;
  bool tie_embeddings = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of each head of q and k, before RoPE
  RopeConfig rope;
  DType dtype = DType::bf16;  // of the activations, unless asked otherwise
  ExpertConfig experts;
  std::optional<QuantisedFormat> quantisation;  // of the checkpoint's matrices; none: values

  bool has_experts(std::int32_t layer) const;
  std::int32_t q_size() const { return heads * head_dim; }      // rows of q_proj
  std::int32_t kv_size() const { return kv_heads * head_dim; }  // rows of k_proj, of v_proj
};

// Reads `text`, the content of a config.json; `file` names it in errors. Throws InputError, naming
// file and key, for a key that is missing though the model's output depends on it, for a value out
// of range, for a switch that no kernel here follows (sliding windows, another activation), and for
// weights quantised in a way that is not supported.
ModelConfig parse_model_config(std::string_view text, const std::string& file);

// The same from `directory`/config.json.
ModelConfig load_model_config(const std::filesystem::path& directory);

}  // namespace sluice
