// Records for a person.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>

namespace sluice {

// The table of a sweep, with a column for each input in which records differ, and below it why cells
// are not valid.
std::string format_table(std::span<const nlohmann::json> records);

}  // namespace sluice
