#include "models/generation_config.hpp"

#include "core/error.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/json_node.hpp"
#include "models/model_files.hpp"

namespace sluice {
namespace {

std::vector<std::int32_t> read_stop_ids(const JsonNode& from, std::int32_t vocab) {
  constexpr const char* kKey = "eos_token_id";
  if (!from.has(kKey)) return {};
  const nlohmann::json& value = from.at(kKey).raw();
  if (!value.is_array()) return {static_cast<std::int32_t>(from.at(kKey).integer(0, vocab - 1))};
  std::vector<std::int32_t> ids;
  for (const nlohmann::json& id : value) {
    if (!id.is_number_integer() || id < 0 || id >= vocab) {
      throw InputError("{} is {}, ids from 0 to {} are needed", from.where(kKey), shown(value),
                       vocab - 1);
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

}  // namespace

GenerationConfig parse_generation_config(std::string_view text, const std::string& file,
                                         std::int32_t vocab) {
  const nlohmann::json parsed = parse_json(text, file);
  const JsonNode from(parsed, file);
  GenerationConfig config;
  config.stop_ids = read_stop_ids(from, vocab);
  if (from.has("do_sample")) config.sample = from.at("do_sample").boolean();
  if (from.has("temperature")) config.temperature = from.at("temperature").number(0, 100);
  if (from.has("top_p")) config.top_p = from.at("top_p").number(0, 1);
  if (from.has("min_p")) config.min_p = from.at("min_p").number(0, 1);
  if (from.has("top_k")) {
    config.top_k = static_cast<std::int32_t>(from.at("top_k").integer(0, INT32_MAX));
  }
  return config;
}

GenerationConfig load_generation_config(const std::filesystem::path& directory,
                                        std::int32_t vocab) {
  const auto load = [&](const char* name) {
    const std::filesystem::path path = directory / name;
    return parse_generation_config(read_file(path, kLargestModelFile), path.string(), vocab);
  };
  const bool own = path_exists(directory / kGenerationConfigName);
  GenerationConfig config = own ? load(kGenerationConfigName) : GenerationConfig{};
  if (config.stop_ids.empty()) config.stop_ids = load(kConfigName).stop_ids;
  return config;
}

}  // namespace sluice
