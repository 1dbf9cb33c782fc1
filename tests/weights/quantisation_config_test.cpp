// `quantization_config` of a config.json: what is read, and what is refused by name.
#include "models/config.hpp"
#include "tests/weights/quantised_files.hpp"

using namespace sluice;
using namespace sluice::test;

TEST_CASE("ways of quantising that are not supported are refused by name") {
  struct Case {
    nlohmann::json config;
    std::string place;  // a JSON pointer; the last name is the key
    nlohmann::json value;
  };
  const nlohmann::json gptq = gptq_config(), awq = awq_config(), int8 = int8_config();
  const std::string group = "/config_groups/group_0";
  const std::vector<Case> cases{
      {gptq, "/bits", 3},
      {gptq, "/bits", 8},
      {gptq, "/bits", "4"},
      {gptq, "/group_size", 32},
      {gptq, "/group_size", -1},
      {gptq, "/checkpoint_format", "marlin"},
      {gptq, "/is_marlin_format", true},
      {gptq, "/quant_method", "fp8"},
      {gptq, "/quant_method", "bitsandbytes"},
      {gptq, "/quant_method", "gguf"},
      {gptq, "/quant_method", "marlin"},
      {awq, "/bits", 8},
      {awq, "/group_size", 64},
      {awq, "/version", "gemv"},
      {awq, "/version", "marlin"},
      {awq, "/zero_point", false},
      {int8, "/format", "pack-quantized"},
      {int8, "/format", "float-quantized"},
      {int8, "/quantization_status", "frozen"},
      {int8, "/kv_cache_scheme", {{"num_bits", 8}}},
      {int8, "/sparsity_config", {{"format", "sparse-24-bitmask"}}},
      {int8, "/transform_config", {{"config_groups", {{"R1", 1}}}}},
      {int8, "/config_groups", nlohmann::json::object()},
      {int8, group + "/format", "pack-quantized"},
      {int8, group + "/weights/num_bits", 4},
      {int8, group + "/weights/type", "float"},
      {int8, group + "/weights/symmetric", false},
      {int8, group + "/weights/strategy", "group"},
      {int8, group + "/weights/dynamic", true},
      {int8, group + "/weights/actorder", "weight"},
  };
  const nlohmann::json plain = quantised_model("gptq").config;
  const auto message_of = [&](const nlohmann::json& quantisation) {
    nlohmann::json config = plain;
    config["quantization_config"] = quantisation;
    return input_error([&] { parse_model_config(config.dump(), "DIR/config.json"); });
  };
  for (const Case& one : cases) {
    INFO(one.place << " " << one.value);
    nlohmann::json config = one.config;
    config[nlohmann::json::json_pointer(one.place)] = one.value;
    std::string place = "DIR/config.json: quantization_config" + one.place;
    for (char& c : place)
      if (&c > place.data() + 16 && c == '/') c = '.';
    const std::string message = message_of(config);
    CHECK(contains(message, place + " is "));
    CHECK(contains(message,
                   "which is not supported; supported are gptq and awq of 4 bits with "
                   "group_size 128, and compressed-tensors"));
  }
  nlohmann::json activations = int8;
  activations["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}};
  CHECK(contains(message_of(activations),
                 "config_groups.group_0.input_activations is {\"num_bits\":8}: activations are not "
                 "quantised here, a checkpoint of quantised weights alone is needed"));
  for (const nlohmann::json& config : {gptq, awq, int8}) {
    CHECK(message_of(config) == "(no InputError was thrown)");
    nlohmann::json without = config;
    without.erase("quant_method");
    CHECK(contains(message_of(without), "quant_method is missing"));
  }
}
