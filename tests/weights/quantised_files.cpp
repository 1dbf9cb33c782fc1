#include "tests/weights/quantised_files.hpp"

#include <functional>
#include <random>

#include "core/float16.hpp"

namespace sluice::test {
namespace {

QuantisedMatrix random_matrix(std::uint64_t n, std::uint64_t k, bool int8, std::mt19937& random,
                              int least_zero = 1) {
  QuantisedMatrix m{n, k, int8, {}, {}, {}};
  const auto from_to = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (std::uint64_t i = 0; i < n * k; ++i)
    m.codes.push_back(int8 ? from_to(-128, 127) : from_to(0, 15));
  for (std::uint64_t i = 0; i < n * m.groups(); ++i) {
    m.zeros.push_back(int8 ? 0 : from_to(least_zero, 15));
    // Exact in f16 and in bf16, so that what each file type holds is this number.
    m.scales.push_back(static_cast<float>(from_to(1, 127)) / 4096.0f);
  }
  return m;
}

// Words of eight nibbles; `nibble(i)` is the i-th of all of them, from the lowest of each word on.
std::string packed_words(std::uint64_t words, const std::function<int(std::uint64_t)>& nibble) {
  std::string bytes;
  for (std::uint64_t byte = 0; byte < words * 4; ++byte)
    bytes.push_back(static_cast<char>(nibble(2 * byte) | nibble(2 * byte + 1) << 4));
  return bytes;
}

std::string scales_by_group(const QuantisedMatrix& m) {
  std::vector<std::uint16_t> scales;
  for (std::uint64_t g = 0; g < m.groups(); ++g)
    for (std::uint64_t row = 0; row < m.n; ++row)
      scales.push_back(f32_to_f16(m.scales[row * m.groups() + g]));
  return bytes_of_all(scales);
}

// `module`: with its last point.
void add_gptq(FileTensors& to, const std::string& module, const QuantisedMatrix& m, int taken_off) {
  to[module + "qweight"] = {"I32", {m.k / 8, m.n}, packed_words(m.k / 8 * m.n, [&](auto i) {
                              const std::uint64_t word = i / 8;
                              return m.code(word % m.n, word / m.n * 8 + i % 8);
                            })};
  to[module + "qzeros"] = {
      "I32", {m.groups(), m.n / 8}, packed_words(m.groups() * m.n / 8, [&](auto i) {
        return m.zeros[i % m.n * m.groups() + i / m.n] - taken_off;
      })};
  to[module + "scales"] = {"F16", {m.groups(), m.n}, scales_by_group(m)};
  std::vector<std::int32_t> groups;
  for (std::uint64_t i = 0; i < m.k; ++i) groups.push_back(static_cast<std::int32_t>(i / 128));
  to[module + "g_idx"] = {"I32", {m.k}, bytes_of_all(groups)};
}

void add_awq(FileTensors& to, const std::string& module, const QuantisedMatrix& m) {
  static constexpr std::uint64_t kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  const auto column = [](std::uint64_t i, std::uint64_t n) {
    return i % n / 8 * 8 + kOrder[i % 8];
  };
  to[module + "qweight"] = {"I32", {m.k, m.n / 8}, packed_words(m.k * m.n / 8, [&](auto i) {
                              return m.code(column(i, m.n), i / m.n);
                            })};
  to[module + "qzeros"] = {
      "I32", {m.groups(), m.n / 8}, packed_words(m.groups() * m.n / 8, [&](auto i) {
        return m.zeros[column(i, m.n) * m.groups() + i / m.n];
      })};
  to[module + "scales"] = {"F16", {m.groups(), m.n}, scales_by_group(m)};
}

void add_int8(FileTensors& to, const std::string& module, const QuantisedMatrix& m,
              const std::string& scale_type) {
  std::string codes;
  for (const int code : m.codes) codes.push_back(static_cast<char>(code));
  to[module + "weight"] = {"I8", {m.n, m.k}, codes};
  std::string scales;
  for (const float scale : m.scales) {
    if (scale_type == "F32") {
      scales += bytes_of_all(std::vector{scale});
      continue;
    }
    const std::uint16_t half = scale_type == "F16" ? f32_to_f16(scale) : f32_to_bf16(scale);
    scales += bytes_of_all(std::vector{half});
  }
  to[module + "weight_scale"] = {scale_type, {m.n, 1}, scales};
}

}  // namespace

std::string file_of(const FileTensors& tensors) {
  nlohmann::ordered_json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.type},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return safetensors_file(header.dump(), data);
}

nlohmann::json gptq_config() {
  return {{"quant_method", "gptq"}, {"bits", 4},    {"group_size", 128},
          {"desc_act", false},      {"sym", false}, {"damp_percent", 0.01}};
}
nlohmann::json awq_config() {
  return {{"quant_method", "awq"}, {"bits", 4},          {"group_size", 128},
          {"version", "gemm"},     {"zero_point", true}, {"modules_to_not_convert", nullptr}};
}
nlohmann::json int8_config() {
  const nlohmann::json weights{{"num_bits", 8},     {"type", "int"},
                               {"symmetric", true}, {"strategy", "channel"},
                               {"dynamic", false},  {"group_size", nullptr}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "int-quantized"},
          {"quantization_status", "compressed"},
          {"ignore", {"lm_head"}},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", weights},
              {"input_activations", nullptr},
              {"output_activations", nullptr}}}}}};
}

QuantisedModel quantised_model(const std::string& format) {
  const bool awq = format == "awq", gptq = format == "gptq" || format == "gptq_v2";
  // AWQ needs whole groups; the others get a row that ends within a group and within 16 bytes.
  const std::uint64_t hidden = awq ? 128 : 72, width = awq ? 256 : 168, head = 24, vocab = 40;
  QuantisedModel model;
  model.config = {{"architectures", {"Qwen2ForCausalLM"}},
                  {"hidden_size", hidden},
                  {"intermediate_size", width},
                  {"num_hidden_layers", 2},
                  {"num_attention_heads", 3},
                  {"num_key_value_heads", 1},
                  {"head_dim", head},
                  {"vocab_size", vocab},
                  {"max_position_embeddings", 64},
                  {"rms_norm_eps", 1e-6},
                  {"rope_theta", 10000.0},
                  {"tie_word_embeddings", false},
                  {"hidden_act", "silu"},
                  {"torch_dtype", "bfloat16"},
                  {"quantization_config", awq    ? awq_config()
                                          : gptq ? gptq_config()
                                                 : int8_config()}};
  if (format == "gptq_v2") model.config["quantization_config"]["checkpoint_format"] = "gptq_v2";
  if (awq) {
    model.config["head_dim"] = 128;
    model.config["num_attention_heads"] = 2;
  }
  const ModelConfig parsed = parse_model_config(model.config.dump(), "config.json");
  std::mt19937 random(7);
  const auto add_values = [&](const std::string& name, const std::vector<std::uint64_t>& shape) {
    std::uint64_t n = 1;
    for (const std::uint64_t extent : shape) n *= extent;
    std::vector<std::uint16_t>& values = model.values[name];
    for (std::uint64_t i = 0; i < n; ++i)
      values.push_back(f32_to_bf16(std::normal_distribution<float>(0, 1)(random)));
    model.tensors[name] = {"BF16", shape, bytes_of_all(values)};
  };
  const auto add_matrix = [&](const std::string& module, std::int32_t rows, std::uint64_t k) {
    const auto n = static_cast<std::uint64_t>(rows);
    // In GPTQ zero points reach 16: they were stored as 15.
    QuantisedMatrix m = random_matrix(n, k, !awq && !gptq, random, format == "gptq" ? 1 : 0);
    if (format == "gptq") m.zeros[1] = 16;
    if (awq)
      add_awq(model.tensors, module, m);
    else if (gptq)
      add_gptq(model.tensors, module, m, format == "gptq" ? 1 : 0);
    else
      add_int8(model.tensors, module, m, format);
    model.matrices[module + "weight"] = m;
  };
  add_values("model.embed_tokens.weight", {vocab, hidden});
  add_values("lm_head.weight", {vocab, hidden});
  add_values("model.norm.weight", {hidden});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer), self = at + "self_attn.";
    const auto q = static_cast<std::uint64_t>(parsed.q_size());
    const auto kv = static_cast<std::uint64_t>(parsed.kv_size());
    add_matrix(self + "q_proj.", parsed.q_size(), hidden);
    add_matrix(self + "k_proj.", parsed.kv_size(), hidden);
    add_matrix(self + "v_proj.", parsed.kv_size(), hidden);
    add_matrix(self + "o_proj.", parsed.hidden, q);
    add_values(self + "q_proj.bias", {q});
    add_values(self + "k_proj.bias", {kv});
    add_values(self + "v_proj.bias", {kv});
    add_matrix(at + "mlp.gate_proj.", parsed.intermediate, hidden);
    add_matrix(at + "mlp.up_proj.", parsed.intermediate, hidden);
    // Not converted.
    if (layer == 0) add_matrix(at + "mlp.down_proj.", parsed.hidden, width);
    if (layer == 1) add_values(at + "mlp.down_proj.weight", {hidden, width});
    add_values(at + "input_layernorm.weight", {hidden});
    add_values(at + "post_attention_layernorm.weight", {hidden});
  }
  return model;
}

ModelSource open_in(const ScratchDir& directory, const QuantisedModel& model) {
  directory.write("config.json", model.config.dump());
  directory.write("model.safetensors", file_of(model.tensors));
  return open_model(CheckpointLocation{directory.path()}, "");
}

}  // namespace sluice::test
