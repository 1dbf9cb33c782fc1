#include "models/quantisation_config.hpp"

#include <algorithm>
#include <cctype>
#include <string>

#include "core/error.hpp"

namespace sluice {
namespace {

constexpr const char* kSupported =
    "gptq and awq of 4 bits with group_size 128, and compressed-tensors \"int-quantized\" of "
    "symmetric int8 weights with the strategy channel";

[[noreturn]] void refuse(const JsonNode& from, const char* key) {
  throw InputError("{} is {}, which is not supported; supported are {}", from.where(key),
                   shown(from.at(key).raw()), kSupported);
}

void need(const JsonNode& from, const char* key, const nlohmann::json& value) {
  if (from.at(key).raw() != value) refuse(from, key);
}

// Of a key that may be left out, for `value`.
void need_if_given(const JsonNode& from, const char* key, const nlohmann::json& value) {
  if (from.has(key)) need(from, key, value);
}

// Missing, null or empty.
void need_nothing(const JsonNode& from, const char* key) {
  if (from.has(key) && !from.at(key).raw().empty()) refuse(from, key);
}

QuantisedFormat read_gptq(const JsonNode& from) {
  need(from, "bits", 4);
  need(from, "group_size", 128);
  need_if_given(from, "is_marlin_format", false);
  // `sym` says nothing that the zero points do not; that `desc_act` left groups in order, or that
  // `dynamic` leaves some as values, is checked where they are read.
  if (!from.has("checkpoint_format")) return QuantisedFormat::gptq;
  const std::string format = from.at("checkpoint_format").string();
  if (format == "gptq") return QuantisedFormat::gptq;
  if (format == "gptq_v2") return QuantisedFormat::gptq_v2;
  refuse(from, "checkpoint_format");
}

QuantisedFormat read_awq(const JsonNode& from) {
  need(from, "bits", 4);
  need(from, "group_size", 128);
  need_if_given(from, "zero_point", true);
  if (from.has("version")) {  // "gemm", in older files "GEMM"
    std::string version = from.at("version").string();
    std::ranges::transform(version, version.begin(),
                           [](unsigned char c) { return std::tolower(c); });
    if (version != "gemm") refuse(from, "version");
  }
  return QuantisedFormat::awq;
}

// Activations are never quantised here. A checkpoint made for that is refused, as its outputs would
// not be those that its makers measured.
void check_group(const JsonNode& group) {
  const JsonNode weights = group.at("weights");
  need(weights, "num_bits", 8);
  need(weights, "type", "int");
  need(weights, "symmetric", true);
  need(weights, "strategy", "channel");
  need_if_given(weights, "dynamic", false);
  need_nothing(weights, "actorder");
  for (const char* key : {"input_activations", "output_activations"}) {
    if (!group.has(key)) continue;
    throw InputError(
        "{} is {}: activations are not quantised here, a checkpoint of quantised weights alone is "
        "needed",
        group.where(key), shown(group.at(key).raw()));
  }
  need_if_given(group, "format", "int-quantized");
}

QuantisedFormat read_compressed_tensors(const JsonNode& from) {
  need(from, "format", "int-quantized");
  need_if_given(from, "quantization_status", "compressed");
  for (const char* key : {"kv_cache_scheme", "sparsity_config", "transform_config"})
    need_nothing(from, key);
  const JsonNode groups = from.at("config_groups");
  groups.expect_object();
  if (groups.raw().empty()) refuse(from, "config_groups");
  for (const auto& [name, group] : groups.raw().items()) check_group(groups.at(name));
  return QuantisedFormat::int8_channel;
}

}  // namespace

std::optional<QuantisedFormat> read_quantisation(const JsonNode& config) {
  if (!config.has("quantization_config")) return std::nullopt;
  const JsonNode from = config.at("quantization_config");
  from.expect_object();
  const std::string method = from.at("quant_method").string();
  if (method == "gptq") return read_gptq(from);
  if (method == "awq") return read_awq(from);
  if (method == "compressed-tensors") return read_compressed_tensors(from);
  refuse(from, "quant_method");
}

}  // namespace sluice
