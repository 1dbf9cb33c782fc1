// Records for a person.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace sluice {

// The table of a sweep, with a column for each input in which records differ, and below it why cells
// are not valid.
std::string format_table(std::span<const nlohmann::json> records);

// Columns side by side, the first to the left and the others to the right. The first row is the head.
using TableRow = std::vector<std::string>;
std::string format_rows(const std::vector<TableRow>& rows);

}  // namespace sluice
