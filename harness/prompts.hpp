// Prompts as an experiment gives them, and as token ids.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "harness/yaml.hpp"

namespace sluice {

// Checks a list of prompts. Each is a text, {text: TEXT}, {ids: [ID, ..]} or {random: LENGTH}, that
// many ids drawn from the vocabulary. Returns an array of {"text": ..}, {"ids": ..}, {"random": ..}.
// Throws InputError with the place.
nlohmann::json check_prompts(const YamlNode& list);

// The same from a file, which is a list or a map with the one key `prompts`.
nlohmann::json load_prompts(const std::string& file);

}  // namespace sluice
