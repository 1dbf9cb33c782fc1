// What a checkpoint says about generating with it: where to stop, and how its makers sample.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct GenerationConfig {
  std::vector<std::int32_t> stop_ids;  // eos_token_id, one or several; empty: never stops by itself
  // Unset: the file does not say.
  std::optional<bool> sample;  // do_sample
  std::optional<double> temperature, top_p, min_p;
  std::optional<std::int32_t> top_k;  // 0: all
};

// Reads `text`, the content of a generation_config.json or of a config.json, which may carry the
// same keys; `file` names it in errors. Ids must lie below `vocab`. Throws InputError.
GenerationConfig parse_generation_config(std::string_view text, const std::string& file,
                                         std::int32_t vocab);

// From `directory`/generation_config.json; where it gives no ids, or there is no such file, they are
// config.json's.
GenerationConfig load_generation_config(const std::filesystem::path& directory, std::int32_t vocab);

}  // namespace sluice
