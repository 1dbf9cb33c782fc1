#include "models/generation_config.hpp"

#include "core/error.hpp"
#include "core/json.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kLargestFile = 16ull << 20;

std::vector<std::int32_t> read_stop_ids(const JsonObject& from, std::int32_t vocab) {
  constexpr const char* kKey = "eos_token_id";
  if (!from.has(kKey)) return {};
  const nlohmann::json& value = from.at(kKey);
  if (!value.is_array()) return {static_cast<std::int32_t>(from.integer(kKey, 0, vocab - 1))};
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
  const JsonObject from(parsed, file);
  GenerationConfig config;
  config.stop_ids = read_stop_ids(from, vocab);
  if (from.has("bos_token_id")) {
    config.bos_id = static_cast<std::int32_t>(from.integer("bos_token_id", 0, vocab - 1));
  }
  if (from.has("do_sample")) config.sample = from.boolean("do_sample");
  if (from.has("temperature")) config.temperature = from.number("temperature", 0, 100);
  if (from.has("top_p")) config.top_p = from.number("top_p", 0, 1);
  if (from.has("min_p")) config.min_p = from.number("min_p", 0, 1);
  if (from.has("top_k")) {
    config.top_k = static_cast<std::int32_t>(from.integer("top_k", 0, INT32_MAX));
  }
  return config;
}

GenerationConfig load_generation_config(const std::filesystem::path& directory,
                                        std::int32_t vocab) {
  const auto load = [&](const char* name) {
    const std::filesystem::path path = directory / name;
    return parse_generation_config(read_text_file(path, kLargestFile), path.string(), vocab);
  };
  const bool own = std::filesystem::exists(directory / "generation_config.json");
  GenerationConfig config = own ? load("generation_config.json") : GenerationConfig{};
  if (!config.stop_ids.empty() && config.bos_id) return config;
  const GenerationConfig model = load("config.json");
  if (config.stop_ids.empty()) config.stop_ids = model.stop_ids;
  if (!config.bos_id) config.bos_id = model.bos_id;
  return config;
}

}  // namespace sluice
